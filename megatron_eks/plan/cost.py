"""What a planned cluster costs an hour, idle and with all its nodes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.catalog import pricing
from megatron_eks.catalog.pricing import Price

if TYPE_CHECKING:
    from collections.abc import Iterable

    from megatron_eks.plan.cluster import ClusterPlan


@dataclass(frozen=True)
class Cost:
    """Prices by item; traffic, logs, builds and S3 are not in it."""

    standing: tuple[Price, ...]
    """What is paid also with no GPU node."""
    gpu_nodes: tuple[Price, ...]
    """What `max_nodes` of every pool add."""

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
    gpu_nodes = (
        Price(
            f"{pool.instance.name} ({pool.name})",
            pool.max_nodes,
            pricing.instance_price(pool.instance.name, region),
        )
        for pool in plan.pools
    )
    return Cost(tuple(price for price in standing if price.count), tuple(gpu_nodes))


def _sum(prices: "Iterable[Price]") -> float | None:
    totals = [price.total for price in prices]
    return None if None in totals else sum(total for total in totals if total is not None)
