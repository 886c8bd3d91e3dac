"""What a planned cluster costs an hour, idle and with all its nodes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.catalog import pricing
from megatron_eks.catalog.pricing import Price

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
    standing = (*_cluster(plan), *_lustre(plan), *_network(plan))
    gpu_nodes = (
        Price(
            f"{pool.instance.name} ({pool.name})",
            pool.max_nodes,
            pricing.instance_price(pool.instance.name, plan.region),
        )
        for pool in plan.pools
    )
    return Cost(tuple(price for price in standing if price.count), tuple(gpu_nodes))


def _cluster(plan: "ClusterPlan") -> "Iterator[Price]":
    if "Cluster" not in plan.stacks:
        return
    region, system = plan.region, plan.system_nodes
    yield Price("EKS control plane", 1, pricing.CONTROL_PLANE_USD_PER_HOUR)
    yield Price(
        f"{system.instance_type} (system)",
        system.count,
        pricing.instance_price(system.instance_type, region),
    )
    yield Price("Bastion", int(plan.access.bastion), pricing.bastion_price(region))


def _lustre(plan: "ClusterPlan") -> "Iterator[Price]":
    if plan.storage.existing:
        return
    for lustre in plan.storage.file_systems:
        price = (
            pricing.lustre_price(lustre.throughput_mbps_per_tib, plan.region)
            if lustre.persistent
            else pricing.scratch_price(plan.region)
        )
        name = "FSx for Lustre, GiB"
        if len(plan.storage.file_systems) > 1:
            name = f"FSx for Lustre in {lustre.zone}, GiB"
        yield Price(name, lustre.capacity_gib, price)


def _network(plan: "ClusterPlan") -> "Iterator[Price]":
    if "Network" not in plan.stacks:
        return
    network = plan.network
    endpoints = len(network.interface_endpoints) * len(network.endpoint_zones)
    yield Price("NAT gateway", len(network.nat_zones), pricing.nat_price(plan.region))
    yield Price("Interface endpoints", endpoints, pricing.endpoint_price(plan.region))


def _sum(prices: "Iterable[Price]") -> float | None:
    totals = [price.total for price in prices]
    return None if None in totals else sum(total for total in totals if total is not None)
