"""What a planned cluster costs an hour, idle and with all its nodes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.catalog import pricing
from megatron_eks.catalog.pricing import Price

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from megatron_eks.plan.cluster import ClusterPlan
    from megatron_eks.plan.job import JobPlan
    from megatron_eks.plan.pools import PoolPlan


_HOUR_SECONDS = 3600
_BILLION = 1e9


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


@dataclass(frozen=True)
class JobCost:
    """What the GPU nodes of a run cost; the rest of the cluster is paid by the hour anyway."""

    usd_per_hour: float | None
    """None when a price is not known."""
    hours: float
    """Until the last token, what failures cost included."""
    usd: float | None
    usd_per_billion_tokens: float | None
    usd_low: float | None
    """If it is as fast as nearly none exceeds."""
    usd_high: float | None


def job_cost(job: "JobPlan", region: str) -> JobCost | None:
    """Price a run; None for jobs whose time is not predicted."""
    training, pool = job.training, job.pool
    if training is None or training.speed is None or training.goodput is None or pool is None:
        return None
    speed, counts = training.speed, training.goodput.expected
    if not counts:
        return None
    rate = speed.tokens_per_second_per_gpu
    hours = training.tokens / rate / training.layout.gpus / counts / _HOUR_SECONDS
    each = _nodes(pool, region).usd_per_hour
    if each is None:
        return JobCost(None, hours, None, None, None, None)
    hourly = each * job.nodes
    usd = hourly * hours
    return JobCost(
        usd_per_hour=hourly,
        hours=hours,
        usd=usd,
        usd_per_billion_tokens=usd / training.tokens * _BILLION,
        usd_low=usd * rate / speed.high,
        usd_high=usd * rate / speed.low,
    )


def cluster_cost(plan: "ClusterPlan") -> Cost:
    """Price everything the plan creates that is billed by the hour."""
    billed = tuple(price for prices in stack_costs(plan).values() for price in prices)
    gpu_nodes = tuple(_nodes(pool, plan.region) for pool in plan.pools)
    return Cost(billed, gpu_nodes, tuple(_notes(plan, (*billed, *gpu_nodes))))


def stack_costs(plan: "ClusterPlan") -> "Mapping[str, tuple[Price, ...]]":
    """Price what each stack holds that is billed by the hour, GPU nodes not counted."""
    parts = {"Cluster": _cluster(plan), "Storage": _lustre(plan), "Network": _network(plan)}
    return {part: tuple(price for price in prices if price.count) for part, prices in parts.items()}


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
