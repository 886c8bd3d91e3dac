"""What a cluster and its jobs cost as planned."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from megatron_eks.catalog import pins, pricing
from megatron_eks.catalog.pricing import Price
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
from megatron_eks.plan.cluster.capacity import CapacityKind
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.observability import samples_per_hour
from megatron_eks.plan.cluster.pools import PoolPlan
from megatron_eks.plan.jobs.job import JobPlan

_HOUR_SECONDS = 3600
_DAY_HOURS = 24
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
        return total(price.total for price in self.standing)

    @property
    def full_usd_per_hour(self) -> float | None:
        """None when a price is not known."""
        return total(price.total for price in (*self.standing, *self.gpu_nodes))


@dataclass(frozen=True)
class JobCost:
    """What a run costs, if it has the cluster to itself."""

    usd_per_hour: float | None
    """Its GPU nodes; None when a price is not known, and so the next."""
    cluster_usd_per_hour: float | None
    """Everything else that is billed by the hour: file systems, control plane, NAT, endpoints."""
    hours: float
    """Until the last token, what failures cost included."""
    days: float
    usd: float | None
    """Both of them for so long."""
    usd_per_billion_tokens: float | None
    usd_low: float | None
    """If it is as fast as nearly none exceeds."""
    usd_high: float | None


def job_cost(job: JobPlan, plan: ClusterPlan) -> JobCost | None:
    """Price a run; None for jobs whose time is not predicted."""
    training, pool = job.training, job.pool
    if training is None or training.speed is None or training.goodput is None or pool is None:
        return None
    speed, counts = training.speed, training.goodput.expected
    if not counts:
        return None
    rate = speed.tokens_per_second_per_gpu
    hours = training.tokens / rate / training.layout.gpus / counts / _HOUR_SECONDS
    nodes = times(_nodes(pool, plan).usd_per_hour, job.nodes)
    standing = cluster_cost(plan).idle_usd_per_hour
    usd = times(total([nodes, standing]), hours)
    return JobCost(
        usd_per_hour=nodes,
        cluster_usd_per_hour=standing,
        hours=hours,
        days=hours / _DAY_HOURS,
        usd=usd,
        usd_per_billion_tokens=None if usd is None else usd / training.tokens * _BILLION,
        usd_low=None if usd is None else usd * rate / speed.high,
        usd_high=None if usd is None else usd * rate / speed.low,
    )


def cluster_cost(plan: ClusterPlan) -> Cost:
    """Price everything the plan creates that is billed by the hour."""
    billed = tuple(price for prices in stack_costs(plan).values() for price in prices)
    gpu_nodes = tuple(_nodes(pool, plan) for pool in plan.pools)
    return Cost(billed, gpu_nodes, tuple(_notes(plan, (*billed, *gpu_nodes))))


def stack_costs(plan: ClusterPlan) -> Mapping[str, tuple[Price, ...]]:
    """Price what each stack holds that is billed by the hour, GPU nodes not counted."""
    parts = {"Cluster": _cluster(plan), "Storage": _lustre(plan), "Network": _network(plan)}
    if _has_scraper(plan):
        parts["Observability"] = iter([Price("Metrics scraper", 1, plan.prices.hour("scraper"))])
    return {part: tuple(price for price in prices if price.count) for part, prices in parts.items()}


def _has_scraper(plan: ClusterPlan) -> bool:
    return plan.observability is not None and plan.observability.prometheus_url is None


def still_billed(plan: ClusterPlan, watch: Mapping[str, str]) -> list[Finding]:
    """Report a stack that is switched off and still there, from what it says of itself."""
    if plan.observability is not None or not watch:
        return []
    hourly = plan.prices.hour("scraper") if "PrometheusUrl" in watch else 0.0
    month = pricing.KEY_USD_PER_MONTH + (hourly or 0) * pricing.HOURS_PER_MONTH
    name = plan.stack("Observability")
    found = f"{name} is still there, and observability is off: {month:,.0f} USD a month"
    remedy = f"aws cloudformation delete-stack --region {plan.region} --stack-name {name}, then "
    remedy += "meks outputs; or meks cleanup, with the cluster"
    return [warning(Code.STILL_BILLED, ("observability", "enabled"), found, remedy)]


def node_price(instance_type: str, capacity: CapacityKind, plan: ClusterPlan) -> float | None:
    """Price one node an hour; None where nobody knows what is paid for it."""
    # A reservation is billed like on-demand nodes; the other kinds have no list price.
    listed = capacity in {"on_demand", "reservation"} or instance_type in plan.prices.instances
    return plan.prices.instance(instance_type) if listed else None


def standing_cost(plan: ClusterPlan) -> tuple[Price, ...]:
    """Price what is billed by the hour and is no node: what a plan alone can tell of."""
    nodes = {price.item for price in _system(plan)}
    return tuple(price for price in cluster_cost(plan).standing if price.item not in nodes)


def _nodes(pool: PoolPlan, plan: ClusterPlan) -> Price:
    name = pool.instance.name
    each = node_price(name, pool.capacity.kind, plan)
    return Price(f"{name} ({pool.name})", pool.max_nodes, each)


def _notes(plan: ClusterPlan, prices: Iterable[Price]) -> Iterator[str]:
    unknown = {price.item for price in prices if price.usd_per_hour is None}
    for pool in plan.pools:
        item = _nodes(pool, plan).item
        if pool.instance.name in plan.prices.instances:
            yield f"{item}: at the price that the configuration says."
        elif pool.capacity.kind == "capacity_block":
            yield f"{item}: unknown here; a Capacity Block was paid when it was bought."
            unknown.discard(item)
        elif pool.capacity.kind == "spot":
            yield f"{item}: unknown; spot prices change, and never exceed the on-demand one."
            unknown.discard(item)
        elif pool.capacity.kind == "reservation":
            yield f"{item}: a reservation is billed whether its nodes run or not."
    # A cluster of this project has the upgrade policy STANDARD, so EKS upgrades it instead.
    end = pins.KUBERNETES_STANDARD_SUPPORT_ENDS.get(plan.kubernetes_version)
    if end is not None and "Cluster" not in plan.stacks:
        extended = f"{pricing.EXTENDED_SUPPORT_USD_PER_HOUR:.2f} USD an hour"
        yield f"EKS {plan.kubernetes_version}: from {end} extended support may bill {extended}."
    if _has_scraper(plan):
        nodes = [(pool.max_nodes, pool.instance) for pool in plan.pools]
        gpus = sum(count * each.gpus for count, each in nodes)
        samples = sum(samples_per_hour(n, each.gpus, each.efa_interfaces) for n, each in nodes)
        usd = samples * pricing.HOURS_PER_MONTH * pricing.SAMPLES_USD
        yield f"Metrics: about {usd:,.0f} USD a month while all {gpus} GPUs run."
    if unknown:
        items = "; ".join(sorted(unknown))
        yield f"unknown: this release has no price in {plan.region} for {items}."


def _cluster(plan: ClusterPlan) -> Iterator[Price]:
    if "Cluster" not in plan.stacks:
        return
    yield Price("EKS control plane", 1, plan.prices.hour("control_plane"))
    yield from _system(plan)
    yield Price("Bastion", int(plan.access.bastion), plan.prices.hour("bastion"))


def _system(plan: ClusterPlan) -> Iterator[Price]:
    system = plan.system_nodes
    item = f"{system.instance_type} (system)"
    yield Price(item, system.count, plan.prices.instance(system.instance_type))


def _lustre(plan: ClusterPlan) -> Iterator[Price]:
    if plan.storage.existing:
        return
    for lustre in plan.storage.file_systems:
        tier = lustre.throughput_mbps_per_tib if lustre.persistent else None
        price = plan.prices.lustre(tier)
        place = f" in {lustre.zone}" * (len(plan.storage.file_systems) > 1)
        yield Price(f"FSx for Lustre{place}, GiB", lustre.capacity_gib, price)


def _network(plan: ClusterPlan) -> Iterator[Price]:
    if "Network" not in plan.stacks:
        return
    network = plan.network
    endpoints = len(network.interface_endpoints) * len(network.endpoint_zones)
    yield Price("NAT gateway", len(network.nat_zones), plan.prices.hour("nat"))
    yield Price("Interface endpoints", endpoints, plan.prices.hour("endpoint"))


def times(usd: float | None, count: float) -> float | None:
    """Return the price of so many; None where that of one is not known."""
    return None if usd is None else usd * count


def total(parts: Iterable[float | None]) -> float | None:
    """Sum prices; None as soon as one is not known."""
    found = list(parts)
    return None if None in found else sum(part for part in found if part is not None)
