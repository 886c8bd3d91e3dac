"""What is wrong with prices of one's own."""

from collections.abc import Iterator

from megatron_eks.catalog.pricing import PriceList
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices, warning

# List prices, as in `catalog/pricing.py`: discounts take two thirds at most, and no region costs
# twice what the cheapest does; a price of a day or a month is 24 or 730 times the list's.
_MOST, _LEAST = 5, 0.02
_LISTED = PriceList("us-east-1")
_LUSTRE_MONTH = 0.60
"""Of a GiB at the highest throughput."""


def check_prices(config: ClusterConfig) -> Iterator[Finding]:
    """Yield prices of what no pool has, and those that are of another unit."""
    used = {pool.instance_type for pool in config.gpu_pools} | {config.system_nodes.instance_type}
    prices = config.prices
    for name, price in prices.instance_hour.items():
        path: Path = ("prices", "instance_hour", name)
        if name not in used:
            found = f"no pool has nodes of type {name!r}"
            yield Finding(Code.NO_MEANING, path, found, choices(name, sorted(used)))
        else:
            yield from _unit(path, price, _LISTED.instance(name), "USD an hour of one node")
    hours = {
        "control_plane_hour": _LISTED.control_plane,
        "nat_hour": _LISTED.nat,
        "endpoint_hour": _LISTED.endpoint,
    }
    for key, listed in hours.items():
        yield from _unit(("prices", key), getattr(prices, key), listed, "USD an hour of one")
    path = ("prices", "lustre_gib_month")
    yield from _unit(path, prices.lustre_gib_month, _LUSTRE_MONTH, "USD a month of one GiB")


def _unit(path: Path, price: float | None, listed: float | None, unit: str) -> Iterator[Finding]:
    if not price or not listed or _LEAST * listed <= price <= _MOST * listed:
        return
    found = f"{price:g}, and the list has {listed:g}"
    yield warning(Code.OWN_PRICE, path, found, f"write {unit}")
