"""The DCGM exporter: a node's GPU metrics for Prometheus, with the pods that use each GPU."""

import cdk8s
from cdk8s_plus_27 import k8s
from constructs import Construct

from megatron_eks.catalog import pins
from megatron_eks.charts.pods import KUBE_SYSTEM, node_agent, scraped_at, sizes
from megatron_eks.plan.cluster.observability import DCGM_EXPORTER
from megatron_eks.plan.cluster.platform import PlatformPlan

_LABELS = {"app.kubernetes.io/name": DCGM_EXPORTER}
_PORT = 9400
_PORT_NAME = "metrics"

_COUNTERS_FILE = "counters.csv"
_COUNTERS_DIRECTORY = "/etc/dcgm-exporter/metrics"
_POD_RESOURCES = "/var/lib/kubelet/pod-resources"

# What a training run is watched for: work done, heat and throttling, memory, links, and the signs
# of a failing GPU. Field names from DCGM's API, "Field Identifiers".
COUNTERS: tuple[tuple[str, str, str], ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock in MHz"),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Why clocks are lowered as a bit mask"),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature in degrees Celsius"),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature in degrees Celsius"),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw in watts"),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since boot in millijoules"),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "Share of time with a kernel running in percent"),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Free GPU memory in MiB"),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Used GPU memory in MiB"),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Number of the last XID error"),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "PCIe retries"),
    ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "NVLink traffic over all lanes"),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped after hard errors"),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped after soft errors"),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping a row has failed"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Share of time the GPU was active"),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Share of cycles the tensor cores were active"),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Share of cycles the memory was active"),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "PCIe bytes sent per second"),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "PCIe bytes received per second"),
)


class DcgmExporter(cdk8s.Chart):
    """A DaemonSet on GPU nodes, the list of what it measures, and a Service to scrape."""

    def __init__(self, scope: Construct, chart_id: str, *, platform: PlatformPlan) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        metadata = k8s.ObjectMeta(name=DCGM_EXPORTER, namespace=KUBE_SYSTEM, labels=_LABELS)
        lines = (", ".join(counter) for counter in COUNTERS)
        k8s.KubeConfigMap(
            self, "counters", metadata=metadata, data={_COUNTERS_FILE: "\n".join(lines) + "\n"}
        )
        kubelet = k8s.HostPathVolumeSource(path=_POD_RESOURCES, type="Directory")
        volumes = [
            k8s.Volume(name="counters", config_map=k8s.ConfigMapVolumeSource(name=DCGM_EXPORTER)),
            k8s.Volume(name="pod-resources", host_path=kubelet),
        ]
        node_agent(self, _container(platform), volumes, taint=platform.gpu_taint)
        self._service()

    def _service(self) -> None:
        port = k8s.ServicePort(
            name=_PORT_NAME, port=_PORT, target_port=k8s.IntOrString.from_string(_PORT_NAME)
        )
        k8s.KubeService(
            self,
            "service",
            metadata=k8s.ObjectMeta(
                name=DCGM_EXPORTER,
                namespace=KUBE_SYSTEM,
                labels=_LABELS,
                annotations=scraped_at(_PORT),
            ),
            spec=k8s.ServiceSpec(selector=_LABELS, ports=[port]),
        )


def _container(platform: PlatformPlan) -> k8s.Container:
    node = k8s.EnvVarSource(field_ref=k8s.ObjectFieldSelector(field_path="spec.nodeName"))
    health = k8s.HttpGetAction(path="/health", port=k8s.IntOrString.from_string(_PORT_NAME))
    return k8s.Container(
        name=DCGM_EXPORTER,
        image=platform.egress.image(pins.DCGM_EXPORTER_IMAGE),
        image_pull_policy="IfNotPresent",
        args=["-f", f"{_COUNTERS_DIRECTORY}/{_COUNTERS_FILE}"],
        env=[
            k8s.EnvVar(name="DCGM_EXPORTER_KUBERNETES", value="true"),
            k8s.EnvVar(name="DCGM_EXPORTER_LISTEN", value=f":{_PORT}"),
            k8s.EnvVar(name="NODE_NAME", value_from=node),
        ],
        ports=[k8s.ContainerPort(name=_PORT_NAME, container_port=_PORT)],
        # Loading the driver's libraries takes it up to half a minute: no fixed delay, for which
        # `meks apply` would wait also where it is quicker.
        startup_probe=k8s.Probe(http_get=health, period_seconds=1, failure_threshold=120),
        liveness_probe=k8s.Probe(http_get=health, period_seconds=15),
        readiness_probe=k8s.Probe(http_get=health),
        resources=sizes("100m", "128Mi", limit="512Mi"),
        # The profiling counters (DCGM_FI_PROF_*) need root with SYS_ADMIN (NVIDIA/dcgm-exporter).
        security_context=k8s.SecurityContext(
            run_as_non_root=False,
            run_as_user=0,
            allow_privilege_escalation=False,
            capabilities=k8s.Capabilities(drop=["ALL"], add=["SYS_ADMIN"]),
        ),
        volume_mounts=[
            k8s.VolumeMount(name="counters", mount_path=_COUNTERS_DIRECTORY, read_only=True),
            k8s.VolumeMount(name="pod-resources", mount_path=_POD_RESOURCES, read_only=True),
        ],
    )
