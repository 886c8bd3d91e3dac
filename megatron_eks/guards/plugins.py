"""Guards of what runs on every GPU node: device plugins, the metrics exporter."""

import re
from collections.abc import Iterator

from megatron_eks.catalog import pins
from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.manifests import Manifests, Pod, manifest_guard
from megatron_eks.guards.quotas import type_values
from megatron_eks.guards.values import NO, YES, Row, Value

_GPU, _EFA, _METRICS = "nvidia-device-plugin", "aws-efa-k8s-device-plugin", "dcgm-exporter"
_PINNED = {
    _GPU: pins.NVIDIA_DEVICE_PLUGIN_IMAGE,
    _EFA: pins.efa_device_plugin_image("us-east-1"),
    _METRICS: pins.DCGM_EXPORTER_IMAGE,
}
_BOX, _SAFE, _ENV = "containers 0 ", "containers 0 securityContext ", "containers 0 env name="
_LEAST, _PROFILE = "a break-out reaches the node", "the profiling counters stay empty"
_NO_EFA, _HANGS = "the plugin cannot open the EFA devices", "nobody notices that it hangs"
_NO_DEVICES = "the kubelet and the plugin meet there, and find no devices"
_UNSEEN, _LOADS = "Prometheus does not find it", "it is ended while the driver loads"
_METRICS_FOLDER, _NO_LIST = "/etc/dcgm-exporter/metrics", "it finds no list of counters, and stops"
_EVERY: Row = ("priorityClassName", ("system-node-critical",), "other pods push it off the node")
_ON_GPUS: tuple[Row, ...] = (
    _EVERY,
    ("nodeSelector nvidia.com/gpu.present", ("true",), "it fails on other nodes, or runs on none"),
    (f"{_SAFE}allowPrivilegeEscalation", (NO,), _LEAST),
    (f"{_SAFE}capabilities drop", (["ALL"],), _LEAST),
)


def _mounted(name: str, path: str, kind: str | None, *read_only: bool) -> list[Row]:
    """Return what a plugin needs of a directory of the node."""
    paths = (path, path.rstrip("/"))
    return [
        (f"volumes name={name} hostPath path", paths, _NO_DEVICES),
        (f"volumes name={name} hostPath type", (kind,), "the pod waits for it, or makes it"),
        (f"{_BOX}volumeMounts name={name} mountPath", paths, _NO_DEVICES),
        (
            f"{_BOX}volumeMounts name={name} readOnly",
            read_only or (None,),
            "a plugin writes its socket",
        ),
    ]


# NVIDIA/k8s-device-plugin, README; aws-efa-k8s-device-plugin since 0.5.13; NVIDIA/dcgm-exporter.
_SETTINGS: dict[str, tuple[Row, ...]] = {
    _GPU: (
        *_ON_GPUS,
        *_mounted("device-plugins", "/var/lib/kubelet/device-plugins", "Directory"),
        (f"{_BOX}command 0", ("nvidia-device-plugin",), "the container starts no plugin"),
        (f"{_ENV}NVIDIA_VISIBLE_DEVICES value", ("all",), "the plugin sees no GPU"),
        (f"{_ENV}NVIDIA_DRIVER_CAPABILITIES value", ("compute,utility",), "it asks no driver"),
        (f"{_ENV}FAIL_ON_INIT_ERROR value", ("true",), "a broken node offers 0 GPUs, silently"),
        (f"{_ENV}MOFED_ENABLED value", ("false",), "it gives away what the EFA plugin gives"),
    ),
    _EFA: (
        _EVERY,
        *_mounted("device-plugins", "/var/lib/kubelet/device-plugins", None),
        *_mounted("infiniband", "/dev/infiniband/", None),
        *_mounted("neuron", "/opt/aws/neuron/", "DirectoryOrCreate"),
        ("hostNetwork", (YES,), "it needs the node's network to find the interfaces"),
        (f"{_SAFE}privileged", (YES,), _NO_EFA),
        (f"{_SAFE}allowPrivilegeEscalation", (YES,), _NO_EFA),
        (f"{_SAFE}runAsUser", (0,), _NO_EFA),
        (f"{_SAFE}runAsNonRoot", (NO,), _NO_EFA),
    ),
    _METRICS: (
        *_ON_GPUS,
        *_mounted("pod-resources", "/var/lib/kubelet/pod-resources", "Directory", YES),
        (f"{_SAFE}capabilities add", (["SYS_ADMIN"],), _PROFILE),
        (f"{_SAFE}runAsUser", (0,), _PROFILE),
        (f"{_SAFE}runAsNonRoot", (NO,), _PROFILE),
        (f"{_ENV}DCGM_EXPORTER_KUBERNETES value", ("true",), "metrics do not name their pod"),
        (f"{_ENV}DCGM_EXPORTER_LISTEN value", (":9400",), "nobody scrapes another port"),
        (f"{_ENV}NODE_NAME valueFrom", (), "metrics do not name their node"),
        (f"{_BOX}args 1", (f"{_METRICS_FOLDER}/counters.csv",), _NO_LIST),
        (f"{_BOX}volumeMounts name=counters mountPath", (_METRICS_FOLDER,), _NO_LIST),
        (f"{_BOX}ports 0 containerPort", (9400,), "the exporter listens at 9400"),
        (f"{_BOX}startupProbe httpGet path", ("/health",), _LOADS),
        (f"{_BOX}startupProbe failureThreshold", (), _LOADS),
        (f"{_BOX}livenessProbe httpGet path", ("/health",), _HANGS),
        (f"{_BOX}readinessProbe httpGet path", ("/health",), _HANGS),
    ),
}
_OF_EXPORTER: dict[str, tuple[Row, ...]] = {
    "ConfigMap": (("data counters.csv", (), _NO_LIST),),
    "Service": (
        ("metadata annotations prometheus.io/scrape", ("true",), _UNSEEN),
        ("metadata annotations prometheus.io/port", ("9400",), _UNSEEN),
        ("metadata annotations prometheus.io/path", ("/metrics",), _UNSEEN),
    ),
}
_VERSION = re.compile(r":v?(\d+)\.(\d+)\.(\d+)")
_FIRST_FOR_P6 = (0, 5, 10)


@manifest_guard
def plugin_settings(manifests: Manifests) -> Iterator[Finding]:
    """Run a device plugin on every node of its kind, with the rights and settings that it needs.

    Kubernetes, "Device Plugins": a node without one offers no device, and pods stay Pending.
    """
    running = _plugins(manifests)
    names = [name for name, _ in running]
    for name, pod in running:
        code = Code.MONITOR if name == _METRICS else Code.DEVICE_PLUGIN
        yield from pod.spec.must_hold(code, _SETTINGS[name])
        if not any(_tolerates(each) for each in pod.spec["tolerations"]):
            found = f"no toleration of nvidia.com/gpu: {name} is kept off the tainted nodes"
            remedy = "add it: key nvidia.com/gpu, operator Exists, effect NoSchedule"
            yield pod.spec["tolerations"].finding(Code.DEVICE_PLUGIN, found, remedy)
        if names.count(name) > 1:
            found = f"two of {name}: the kubelet takes the devices of the one that came last"
            where = pod.owner["metadata"]["name"]
            yield where.finding(Code.DEVICE_PLUGIN, found, "keep one of the two")
    for missing, resource in ((_EFA, "vpc.amazonaws.com/efa"), (_GPU, "nvidia.com/gpu")):
        asking = [each for each in manifests.pods if each.asks(resource)]
        if names and asking and missing not in names:
            found = f"no {missing} beside the other plugins: no node offers {resource}"
            place = asking[0].main["resources"]["limits"][resource]
            yield place.finding(Code.DEVICE_PLUGIN, found, f"apply the DaemonSet {missing}")
    for each in manifests.of(*_OF_EXPORTER):
        if each.name == _METRICS:
            yield from each.body.must_hold(Code.MONITOR, _OF_EXPORTER[each.kind])


@manifest_guard
def plugin_nodes(manifests: Manifests) -> Iterator[Finding]:
    """Run the plugin for EFA where there is EFA, and releases that know the family of the node."""
    known = {name for name, each in INSTANCES.items() if each.efa_interfaces}
    term = "requiredDuringSchedulingIgnoredDuringExecution nodeSelectorTerms 0"
    for name, pod in _plugins(manifests):
        types = [each.text for each in type_values(pod.owner)]
        where = pod.spec.at(f"affinity nodeAffinity {term} matchExpressions 0")
        right = types and known >= set(types) and len(set(types)) == len(types)
        if name == _EFA and not (right and where["operator"].text == "In"):
            found = f"it runs on {types or 'any type'}: not on each type with EFA, or on others"
            remedy = "write In, and the types of the pools with EFA"
            yield where.finding(Code.NODE_SELECTOR, found, remedy)
        image, least = pod.main["image"], _release(_PINNED[name])
        version = _release(image.text) if _known(image.text) == name else ()
        if version < least:
            p6 = name == _EFA and any(e.startswith("p6") for e in types) and version < _FIRST_FOR_P6
            found = f"no release of {name}, or older than the one that was tried"
            found = "it takes the NVLink controllers of p6 nodes for EFA devices" if p6 else found
            level = Level.WARNING if version and not p6 else Level.ERROR
            yield image.finding(Code.DEVICE_PLUGIN, found, f"use {_PINNED[name]}", level)


def _plugins(manifests: Manifests) -> list[tuple[str, Pod]]:
    """Return each plugin's name and pod, known by its image or by its name."""
    pods = [each for each in manifests.pods if each.owner.kind == "DaemonSet"]
    named = [(_known(e.main["image"].text) or _known(f"/{e.owner.name}:"), e) for e in pods]
    return [(name, pod) for name, pod in named if name]


def _known(image: str) -> str:
    """Return the plugin of an image, also of a mirror."""
    plain = image.partition("@")[0].rpartition(":")[0]
    ends = {_GPU: "k8s-device-plugin", _EFA: _EFA, _METRICS: _METRICS}
    return next((e for e in (_EFA, _METRICS, _GPU) if plain.endswith((f"/{ends[e]}", f"/{e}"))), "")


def _release(image: str) -> tuple[int, ...]:
    match = _VERSION.search(image)
    return tuple(map(int, match.groups())) if match else ()


def _tolerates(toleration: Value) -> bool:
    exists = toleration["operator"].text == "Exists"
    key = toleration["key"].text == "nvidia.com/gpu" or (exists and not toleration["key"])
    given = exists or toleration["value"].text == "true"
    return key and given and toleration["effect"].raw in (None, "NoSchedule")
