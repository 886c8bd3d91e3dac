"""What a planned cluster costs an hour, idle and with all its nodes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.catalog import pricing
from megatron_eks.catalog.pricing import Price

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from megatron_eks.plan.cluster import ClusterPlan
    from megatron_eks.plan.pools import PoolPlan


@dataclass(frozen=True)
class Cost:
    """Prices by item; traffic, logs, builds and S3 are not in it."""

    standing: tuple[Price, ...]
    """What is paid also with no GPU node."""
    gpu_nodes: tuple[Price, ...]
    """What `max_nodes` of every pool add."""
    notes: tuple[str, ...]
    """What a sum cannot say: prices that are unknown and why, and what is billed without nodes."""

    @property
    def idle_usd_per_hour(self) -> float | None:
        """None when a price is not known."""
        return _sum(self.standing)

    @property
    def full_usd_per_hour(self) -> float | None:
        """None when a price is not known."""
        return _sum((*self.standing, *self.gpu_nodes))


def cluster_cost(plan: "ClusterPlan") -> Cost:
    """Price everything the plan creates that is billed by the hour."""
    region, network, lustre = plan.region, plan.network, plan.storage.lustre
    endpoints = len(network.interface_endpoints) * len(plan.availability_zones)
    system = plan.system_nodes
    standing = (
        Price("EKS control plane", 1, pricing.CONTROL_PLANE_USD_PER_HOUR),
        Price(
            f"{system.instance_type} (system)",
            system.count,
            pricing.instance_price(system.instance_type, region),
        ),
        Price(
            "FSx for Lustre, GiB",
            lustre.capacity_gib,
            pricing.lustre_price(lustre.throughput_mbps_per_tib, region),
        ),
        Price("NAT gateway", len(network.nat_zones), pricing.nat_price(region)),
        Price("Interface endpoints", endpoints, pricing.endpoint_price(region)),
    )
    billed = tuple(price for price in standing if price.count)
    gpu_nodes = tuple(_nodes(pool, region) for pool in plan.pools)
    return Cost(billed, gpu_nodes, tuple(_notes(plan, (*billed, *gpu_nodes))))


def _nodes(pool: "PoolPlan", region: str) -> Price:
    item = f"{pool.instance.name} ({pool.name})"
    # A reservation is billed like on-demand nodes; the other kinds have no list price.
    listed = pool.capacity.kind in {"on_demand", "reservation"}
    price = pricing.instance_price(pool.instance.name, region) if listed else None
    return Price(item, pool.max_nodes, price)


def _notes(plan: "ClusterPlan", prices: "Iterable[Price]") -> "Iterator[str]":
    unknown = {price.item for price in prices if price.usd_per_hour is None}
    for pool in plan.pools:
        item = _nodes(pool, plan.region).item
        if pool.capacity.kind == "capacity_block":
            yield f"{item}: unknown here; a Capacity Block was paid when it was bought."
            unknown.discard(item)
        elif pool.capacity.kind == "spot":
            yield f"{item}: unknown; spot prices change, and never exceed the on-demand one."
            unknown.discard(item)
        elif pool.capacity.kind == "reservation":
            yield f"{item}: a reservation is billed whether its nodes run or not."
    if unknown:
        items = "; ".join(sorted(unknown))
        yield f"unknown: this release has no price in {plan.region} for {items}."


def _sum(prices: "Iterable[Price]") -> float | None:
    totals = [price.total for price in prices]
    return None if None in totals else sum(total for total in totals if total is not None)
