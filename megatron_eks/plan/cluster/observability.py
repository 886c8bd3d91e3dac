"""Metrics, alarms and the budget of a cluster, and what is refused of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from megatron_eks.config.cluster import CapacityBlock, ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
from megatron_eks.config.observability import Observability

SCRAPER_ZONES = 2
"""In so many zones the scraper has an address (Amazon Managed Prometheus, "Collectors")."""

_BEFORE_A_BLOCK_ENDS = (timedelta(hours=24), timedelta(hours=4), timedelta(hours=1))

DCGM_EXPORTER = "dcgm-exporter"
"""The Service of what measures GPUs, and the scrape job that finds its targets by it."""


SAMPLES_PER_GPU_HOUR = 20 * 120
"""Of the DCGM exporter's counters, twice a minute."""


@dataclass(frozen=True)
class BlockWarning:
    """When somebody is told that a Capacity Block ends."""

    pool: str
    at: datetime
    hours: int
    """Until its end."""


@dataclass(frozen=True)
class ObservabilityPlan:
    """What the Observability stack is made of."""

    alarm_email: str | None
    monthly_budget_usd: float | None
    retention_days: int
    block_warnings: tuple[BlockWarning, ...]


@dataclass(frozen=True)
class Alert:
    """A condition on GPU metrics that somebody is told of."""

    name: str
    query: str
    """PromQL; what it returns has the trouble."""
    minutes: int
    """How long it must last."""
    severity: str
    """`page`: work is lost while nobody looks; `ticket`: see to it today."""
    summary: str
    remedy: str


# Xids that a program causes and that leave the GPU as it was: illegal access and instructions,
# resets of channels, preemptive clean-up (NVIDIA, "Xid Errors").
_OF_PROGRAMS = (13, 31, 43, 45)
_XID = "DCGM_FI_DEV_XID_ERRORS"
_GPUS = "count by (Hostname) (DCGM_FI_DEV_GPU_TEMP)"

# Field names from DCGM's API, "Field Identifiers"; labels from NVIDIA/dcgm-exporter, which gives a
# GPU's series the pod that has it.
ALERTS = (
    Alert(
        "GpuError",
        # The metric keeps the last code for ever, so what tells is that it changes.
        f"{_XID} and changes({_XID}[10m]) > 0 "
        f"unless ({' or '.join(f'{_XID} == {n}' for n in _OF_PROGRAMS)})",
        0,
        "page",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} reports Xid {{ $value }}",
        "meks nodes; a job on it stops or goes wrong",
    ),
    Alert(
        "GpuLost",
        f"{_GPUS} < max_over_time({_GPUS}[1h:1m])",
        5,
        "page",
        "{{ $labels.Hostname }} shows {{ $value }} GPUs, fewer than an hour ago",
        "meks nodes --cordon NODE, then meks submit: the job goes on from its checkpoint",
    ),
    Alert(
        "GpuMemoryFailing",
        "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0",
        0,
        "page",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} cannot remap failing memory any more",
        "meks nodes --cordon NODE, and have AWS replace the instance",
    ),
    Alert(
        "GpuHot",
        # Where A100 and H100 begin to slow down (nvidia-smi -q -d TEMPERATURE).
        "DCGM_FI_DEV_GPU_TEMP >= 85",
        10,
        "ticket",
        "GPU {{ $labels.gpu }} of {{ $labels.Hostname }} is at {{ $value }} degrees and slows down",
        "meks nodes; one slow GPU holds up all ranks",
    ),
    Alert(
        "JobIdle",
        'max by (namespace, pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""}) < 0.05',
        15,
        "page",
        "pod {{ $labels.pod }} has GPUs and does not use them",
        "meks status JOB, then meks logs JOB --explain",
    ),
    Alert(
        "NodeIdle",
        "max by (Hostname) (DCGM_FI_DEV_GPU_UTIL) == 0",
        60,
        "ticket",
        "{{ $labels.Hostname }} has done nothing for an hour and is billed",
        "meks cost, then meks scale POOL N",
    ),
    Alert(
        "GpuMetricsMissing",
        f'up{{job="{DCGM_EXPORTER}"}} == 0',
        15,
        "ticket",
        "no GPU metrics from {{ $labels.instance }}",
        "kubectl -n kube-system get pods -l app.kubernetes.io/name=dcgm-exporter",
    ),
)


def rule_groups() -> dict[str, object]:
    """Return the alerts as Prometheus reads them (Prometheus, "Alerting rules")."""
    rules = [
        {
            "alert": alert.name,
            "expr": alert.query,
            "for": f"{alert.minutes}m",
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "next": alert.remedy},
        }
        for alert in ALERTS
    ]
    return {"groups": [{"name": "gpus", "rules": rules}]}


def scrape_configuration() -> dict[str, object]:
    """Return what the agentless scraper reads: the DCGM exporter of each node, twice a minute."""
    source = "__meta_kubernetes_endpoint_node_name"
    name = "__meta_kubernetes_service_name"
    job = {
        "job_name": DCGM_EXPORTER,
        # Of a series with a pod of its own, the exporter's labels are right.
        "honor_labels": True,
        "kubernetes_sd_configs": [
            {"role": "endpoints", "namespaces": {"names": ["kube-system"]}},
        ],
        "relabel_configs": [
            {"source_labels": [name], "regex": DCGM_EXPORTER, "action": "keep"},
            {"source_labels": [source], "target_label": "node"},
        ],
    }
    return {"global": {"scrape_interval": "30s"}, "scrape_configs": [job]}


def plan_observability(config: ClusterConfig) -> ObservabilityPlan | None:
    """Plan metrics, alarms and the budget; None where they are off."""
    wish = config.observability
    if not wish.enabled:
        return None
    warnings = tuple(
        BlockWarning(pool.name, pool.capacity.ends_at - before, before // timedelta(hours=1))
        for pool in config.gpu_pools
        if isinstance(pool.capacity, CapacityBlock)
        for before in _BEFORE_A_BLOCK_ENDS
    )
    return ObservabilityPlan(
        wish.alarm_email, wish.monthly_budget_usd, wish.retention_days, warnings
    )


def check_observability(config: ClusterConfig) -> Iterator[Finding]:
    """Yield what would do nothing, and what metrics lack."""
    wish = config.observability
    if not wish.enabled:
        for key in ("alarm_email", "monthly_budget_usd", "retention_days"):
            if getattr(wish, key) != Observability.model_fields[key].default:
                found = "does nothing while observability.enabled is false"
                remedy = "set observability.enabled: true, or leave it out"
                yield Finding(Code.NO_MEANING, ("observability", key), found, remedy)
        return
    network = config.network
    zones = network.private_subnets if network.vpc_id else config.availability_zones
    if config.existing_cluster and (len(zones) < SCRAPER_ZONES or not network.vpc_id):
        found = "the metrics scraper needs private subnets of the cluster in two zones"
        remedy = "set network.vpc_id, private_subnets and node_security_group_id to the cluster's"
        yield Finding(Code.EXISTING_VPC, ("observability", "enabled"), found, remedy)
    if not config.platform.dcgm_exporter:
        found = "no exporter measures the GPUs: platform.dcgm_exporter is false"
        remedy = "set platform.dcgm_exporter: true"
        yield Finding(Code.NO_MEANING, ("observability", "enabled"), found, remedy)
    if wish.alarm_email is None:
        found = "alarms go to a topic without a subscriber"
        remedy = "set observability.alarm_email, or subscribe to the stack's output AlarmTopicArn"
        yield warning(Code.NOBODY_TOLD, ("observability", "alarm_email"), found, remedy)
