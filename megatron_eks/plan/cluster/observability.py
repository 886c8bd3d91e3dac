"""Metrics, alarms and the budget of a cluster, and what is refused of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from megatron_eks.config.cluster import ClusterConfig, Observability
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, warning
from megatron_eks.config.load import read_mapping
from megatron_eks.plan.cluster.pools import PoolPlan
from megatron_eks.programs.exporter.series import EFA_COUNTERS, SERIES

SCRAPER_ZONES = 2
"""In so many zones the scraper has an address (Amazon Managed Prometheus, "Collectors")."""

_BEFORE_A_BLOCK_ENDS = (timedelta(hours=24), timedelta(hours=4), timedelta(hours=1))

DCGM_EXPORTER = "dcgm-exporter"
"""The Service of what measures GPUs, and the scrape job that finds its targets by it."""


SERIES_PER_GPU = 20
"""Of the DCGM exporter."""

_SCRAPES_PER_HOUR = 120
_SERIES_PER_NODE = len(SERIES) + 2
"""At most, of a job's exporter and of the kubelet."""

METRICS_PORT = 9401
"""Of the exporter in a job's pods, next to DCGM's."""

METRICS_PORT_NAME = "metrics"
"""The name of that port, by which a scraper finds the pods."""

TRAINING, SCHEDULER, NODES, QUEUES = "training", "kube-scheduler", "kubelet", "kueue"
"""The other scrape jobs."""


def samples_per_hour(nodes: int, gpus: int, efa_devices: int) -> int:
    """Return how many samples nodes of so many GPUs yield with jobs on them, twice a minute."""
    series = gpus * SERIES_PER_GPU + efa_devices * len(EFA_COUNTERS) + _SERIES_PER_NODE
    return nodes * series * _SCRAPES_PER_HOUR


@dataclass(frozen=True)
class BlockWarning:
    """When somebody is told that a Capacity Block ends."""

    pool: str
    at: datetime
    hours: int
    """Until its end."""


_FILE = Path(__file__).with_name("scrape.yaml")


def scrape_configuration(
    namespaces: Sequence[str], *, queues: bool, in_cluster: bool = False
) -> dict[str, object]:
    """Return what a scraper reads twice a minute, of jobs in these namespaces.

    AWS's knows the API server's certificate; a Prometheus in the cluster finds it in its pod.
    """
    found: Any = read_mapping(_FILE.read_text(encoding="utf-8"), _FILE.name).value
    jobs = {each["job_name"]: each for each in found["scrape_configs"]}
    jobs[TRAINING]["kubernetes_sd_configs"][0]["namespaces"]["names"] += namespaces
    if not in_cluster:
        for name in (SCHEDULER, NODES):
            del jobs[name]["tls_config"]
    if not queues:
        del jobs[QUEUES]
    return {**found, "scrape_configs": [*jobs.values()]}


def scrape_training(*namespaces: str) -> dict[str, Any]:
    """Return what finds the exporters of jobs in some namespaces."""
    jobs: Any = scrape_configuration(namespaces, queues=False)["scrape_configs"]
    return next(each for each in jobs if each["job_name"] == TRAINING)


def block_warnings(pools: Iterable[PoolPlan]) -> Iterator[BlockWarning]:
    """Yield when somebody is told that the Capacity Blocks of pools end."""
    for pool in pools:
        if ends_at := pool.capacity.ends_at:
            for before in _BEFORE_A_BLOCK_ENDS:
                yield BlockWarning(pool.name, ends_at - before, before // timedelta(hours=1))


def check_observability(config: ClusterConfig) -> Findings:
    """Yield what would do nothing, and what metrics lack."""
    wish = config.observability
    is_own = wish.metrics == "own"
    unused = ["retention_days"] if is_own else ["prometheus_url"]
    why = f"metrics is {wish.metrics}"
    remedy = "use metrics: amp" if is_own else "use metrics: own"
    if not wish.enabled:
        unused = [key for key in Observability.model_fields if key != "enabled"]
        why, remedy = "enabled is false", "set observability.enabled: true"
    for key in unused:
        if getattr(wish, key) != Observability.model_fields[key].default:
            found, place = f"does nothing while observability.{why}", ("observability", key)
            yield Finding(Code.NO_MEANING, place, found, f"{remedy}, or leave it out")
    if not wish.enabled:
        return
    if is_own and wish.prometheus_url is None:
        found = "no Prometheus is named, so nobody can see whether it has the alerts"
        remedy = "add prometheus_url: http://HOST:9090, which is asked by `meks apply`"
        yield Finding(Code.OWN_PROMETHEUS, ("observability", "metrics"), found, remedy)
    network = config.network
    has_place = network.vpc_id and len(network.private_subnets) >= SCRAPER_ZONES
    if config.existing_cluster and not is_own and not has_place:
        found = "the metrics scraper needs private subnets of the cluster in two zones"
        remedy = "set network.vpc_id, private_subnets and node_security_group_id to the cluster's"
        yield Finding(Code.EXISTING_VPC, ("observability", "enabled"), found, remedy)
    if not config.platform.dcgm_exporter:
        found = "no exporter measures the GPUs: platform.dcgm_exporter is false"
        remedy = "set platform.dcgm_exporter: true"
        yield Finding(Code.NO_MEANING, ("observability", "enabled"), found, remedy)
    if wish.alarm_email is None and wish.webhook_secret is None:
        found = "alarms go to a topic without a subscriber"
        remedy = "set observability.alarm_email or webhook_secret, or subscribe to AlarmTopicArn"
        yield warning(Code.NOBODY_TOLD, ("observability", "alarm_email"), found, remedy)
