"""Metrics, alarms and the budget of a cluster, and what is refused of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from megatron_eks.catalog import kueue
from megatron_eks.config.cluster import ClusterConfig, Observability
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
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


METRICS_PORT = 9401
"""Of the exporter in a job's pods, next to DCGM's."""

METRICS_PORT_NAME = "metrics"
"""The name of that port, by which a scraper finds the pods."""

TRAINING, SCHEDULER, NODES, QUEUES = "training", "kube-scheduler", "kubelet", "kueue"
"""The other scrape jobs."""

_OF_THE_SCHEDULER = "scheduler_pending_pods"
_OF_NODES = "node_cpu_usage_seconds_total|node_memory_working_set_bytes"
_OF_QUEUES = (
    "kueue_pending_workloads|kueue_admitted_workloads_total"
    "|kueue_cluster_queue_resource_usage|kueue_cluster_queue_nominal_quota"
)
# Seen from a pod; what else its service account may read is not asked for.
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_CA_FILE = f"{_ACCOUNT}/ca.crt"
_API_SERVER: dict[str, object] = {
    "scheme": "https",
    "authorization": {"type": "Bearer", "credentials_file": f"{_ACCOUNT}/token"},
}


def scrape_configuration(
    namespaces: Sequence[str], *, queues: bool, in_cluster: bool = False
) -> dict[str, object]:
    """Return what a scraper reads twice a minute, of jobs in these namespaces.

    AWS's knows the API server's certificate; a Prometheus in the cluster finds it in its pod.
    Paths and what its rights allow: Amazon Managed Prometheus, "Using an AWS managed collector".
    """
    api_server = _API_SERVER | ({"tls_config": {"ca_file": _CA_FILE}} if in_cluster else {})
    gpus = {
        "job_name": DCGM_EXPORTER,
        # Of a series with a pod of its own, the exporter's labels are right.
        "honor_labels": True,
        "kubernetes_sd_configs": [_discovery("endpoints", "kube-system")],
        "relabel_configs": [
            _relabel("service_name", regex=DCGM_EXPORTER, action="keep"),
            _relabel("endpoint_node_name", target_label="node"),
        ],
    }
    scheduler = {
        "job_name": SCHEDULER,
        **api_server,
        "metrics_path": "/apis/metrics.eks.amazonaws.com/v1/ksh/container/metrics",
        "kubernetes_sd_configs": [_discovery("endpoints", "default")],
        "relabel_configs": [
            _relabel(
                "service_name",
                "endpoint_port_name",
                regex="kubernetes;https",
                action="keep",
            )
        ],
        "metric_relabel_configs": [_only(_OF_THE_SCHEDULER)],
    }
    nodes = {
        "job_name": NODES,
        **api_server,
        "kubernetes_sd_configs": [_discovery("node")],
        "relabel_configs": [
            {"target_label": "__address__", "replacement": "kubernetes.default.svc:443"},
            _relabel("node_name", target_label="node"),
            _relabel(
                "node_name",
                target_label="__metrics_path__",
                replacement="/api/v1/nodes/$1/proxy/metrics/resource",
            ),
        ],
        "metric_relabel_configs": [_only(_OF_NODES)],
    }
    # By queue, which is a team: kubernetes-sigs/kueue v0.19.2, pkg/metrics.
    waiting = {
        "job_name": QUEUES,
        **_API_SERVER,
        # It makes its certificate itself, and answers who may read /metrics.
        "tls_config": {"insecure_skip_verify": True},
        "kubernetes_sd_configs": [_discovery("pod", kueue.NAMESPACE)],
        "relabel_configs": [
            _relabel("pod_container_port_name", regex=METRICS_PORT_NAME, action="keep"),
            _relabel("pod_name", target_label="pod"),
        ],
        "metric_relabel_configs": [_only(_OF_QUEUES)],
    }
    jobs = [gpus, scrape_training(*namespaces), scheduler, nodes]
    return {
        "global": {"scrape_interval": "30s"},
        "scrape_configs": [*jobs, waiting] if queues else jobs,
    }


def scrape_training(*namespaces: str) -> dict[str, object]:
    """Return what finds the exporters of jobs in some namespaces."""
    return {
        "job_name": TRAINING,
        # `job` is the job file's name.
        "honor_labels": True,
        "kubernetes_sd_configs": [_discovery("pod", *namespaces)],
        "relabel_configs": [
            _relabel("pod_container_port_name", regex=METRICS_PORT_NAME, action="keep"),
            _relabel("namespace", target_label="namespace"),
            _relabel("pod_name", target_label="pod"),
            _relabel("pod_node_name", target_label="node"),
        ],
    }


def _discovery(role: str, *namespaces: str) -> dict[str, object]:
    return {"role": role, **({"namespaces": {"names": [*namespaces]}} if namespaces else {})}


def _relabel(*sources: str, **more: str) -> dict[str, object]:
    return {"source_labels": [f"__meta_kubernetes_{each}" for each in sources], **more}


def _only(names: str) -> dict[str, object]:
    """Keep some of many series: each sample is billed."""
    return {"source_labels": ["__name__"], "regex": names, "action": "keep"}


def block_warnings(pools: Iterable[PoolPlan]) -> Iterator[BlockWarning]:
    """Yield when somebody is told that the Capacity Blocks of pools end."""
    for pool in pools:
        if ends_at := pool.capacity.ends_at:
            for before in _BEFORE_A_BLOCK_ENDS:
                yield BlockWarning(pool.name, ends_at - before, before // timedelta(hours=1))


def check_observability(config: ClusterConfig) -> Iterator[Finding]:
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
            found = f"does nothing while observability.{why}"
            yield Finding(
                Code.NO_MEANING, ("observability", key), found, f"{remedy}, or leave it out"
            )
    if not wish.enabled:
        return
    if is_own and wish.prometheus_url is None:
        found = "no Prometheus is named, so nobody can see whether it has the alerts"
        remedy = "add prometheus_url: http://HOST:9090, which is asked by `meks apply`"
        yield Finding(Code.OWN_PROMETHEUS, ("observability", "metrics"), found, remedy)
    network = config.network
    zones = network.private_subnets if network.vpc_id else config.availability_zones
    has_place = network.vpc_id and len(zones) >= SCRAPER_ZONES
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
        remedy = (
            "set observability.alarm_email or webhook_secret, or subscribe to the stack's output "
        )
        remedy += "AlarmTopicArn"
        yield warning(Code.NOBODY_TOLD, ("observability", "alarm_email"), found, remedy)
