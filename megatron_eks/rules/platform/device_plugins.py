"""Rules over device plugins: what they need of the node, one for a device, where pods go."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.hardware import instance_types
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_shape import NO_DEVICES
from megatron_eks.rules.values import items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Container, Manifest, Pod

KUBELET = "/var/lib/kubelet/device-plugins"
"""Where device plugins register with the kubelet."""
# NVIDIA/k8s-device-plugin and aws-samples/aws-efa-eks: the image, its device, what it reads; the
# second reads /dev/infiniband since v0.5.
_KNOWN = (
    (re.compile(r"(^|/)(nvidia-)?k8s-device-plugin([:@]|$)"), GPU, (KUBELET,)),
    (re.compile(r"(^|/)aws-efa-k8s-device-plugin:v0\.[5-9]"), EFA, (KUBELET, "/dev/infiniband")),
    (re.compile(r"(^|/)aws-efa-k8s-device-plugin(?!:v0\.[5-9])([:@]|$)"), EFA, (KUBELET,)),
)
_PROGRAM = "device-plugin"
# What watches or prepares a node, and does not compute on it.
_AGENT = re.compile(
    r"(^|/)((nvidia-)?k8s-device-plugin|aws-efa-k8s-device-plugin|dcgm-exporter|dcgm|pause"
    r"|gpu-feature-discovery|node-exporter|node-problem-detector|eks-node-monitoring-agent"
    r"|cloudwatch-agent|neuron-monitor)([:@]|$)"
)
_EXPORTER = re.compile(r"(^|/)dcgm-exporter([:@]|$)")


@dataclass(frozen=True)
class Plugin:
    """A container that offers a device, and what it reads on the node."""

    manifest: Manifest
    pod: Pod
    container: Container
    device: str
    paths: tuple[str, ...]


def plugins(manifest: Manifest) -> Iterator[Plugin]:
    """Return the device plugins of a DaemonSet."""
    if manifest.kind != "DaemonSet":
        return
    for pod in manifest.pods:
        for container in pod.containers:
            image = text(container.body.get("image")) or ""
            # The image holds other programs too, such as gpu-feature-discovery.
            command = items(container.body.get("command")) or []
            other = bool(command) and _PROGRAM not in str(command[0])
            for form, device, paths in _KNOWN:
                if form.search(image) and not container.is_init and not other:
                    yield Plugin(manifest, pod, container, device, paths)


def host_paths(manifest: Manifest) -> Iterator[Finding]:
    """Require of a device plugin the directories of the node that it works on.

    Kubernetes, "Device Plugins": it registers by a socket in the kubelet's directory;
    aws-samples/aws-efa-eks: the EFA devices are in /dev/infiniband.
    """
    for plugin in plugins(manifest):
        volumes = items(plugin.pod.spec.get("volumes"))
        mounts = items(plugin.container.body.get("volumeMounts"))
        if volumes is None or mounts is None:
            continue
        mounted = {text((mapping(each) or {}).get("name")): each for each in mounts}
        given = {
            (text(host.get("path")) or "").rstrip("/")
            for each in volumes
            if (host := mapping((mapping(each) or {}).get("hostPath")) or {})
            and text((mapping(each) or {}).get("name")) in mounted
        }
        for path in plugin.paths:
            # A directory above it holds it too.
            if not any(path == each or path.startswith(f"{each}/") for each in given):
                found = f"no hostPath {path}, without which the node offers no {plugin.device}"
                remedy = f"mount {path} from the node"
                place = (*plugin.pod.path[1:], "volumes")
                yield manifest.find(Code.DEVICE_PLUGIN, place, found, remedy)


def one_for_a_device(together: ManifestSet) -> Iterator[Found]:
    """Warn of two plugins for one device on the same nodes, and of one that pods' taints keep off.

    Kubernetes, "Device Plugins": the last to register wins, and the devices of the other are
    unhealthy; "Taints and Tolerations": a node without the plugin offers no device, whatever its
    pods tolerate.
    """
    every = [plugin for manifest in together.objects for plugin in plugins(manifest)]
    for number, plugin in enumerate(every):
        for other in every[:number]:
            # One of the same name takes its place.
            same = plugin.manifest.name == other.manifest.name
            meet = not same and may_meet(plugin.pod, other.pod)
            if other.device == plugin.device and meet:
                found = f"{other.manifest.title} offers {plugin.device} on the same nodes"
                finding = plugin.manifest.find(
                    Code.DEVICE_PLUGIN, (), found, "keep one of them", Level.WARNING
                )
                yield plugin.manifest, finding
                break
        kept = _kept_off(plugin, together)
        if kept is not None:
            who, key = kept
            found = f"{who.title} tolerates {shown(key)} and this does not: no device there"
            path = (*plugin.pod.path[1:], "tolerations")
            remedy = f"tolerate {key} here too"
            finding = plugin.manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING)
            yield plugin.manifest, finding


def exporters(together: ManifestSet) -> Iterator[Found]:
    """Warn of an exporter of metrics that the taints of GPU nodes keep off.

    NVIDIA/dcgm-exporter, deployment: it tolerates what the device plugin tolerates.
    """
    for manifest in together.of("DaemonSet"):
        for pod in manifest.pods:
            for container in pod.containers:
                if not _EXPORTER.search(text(container.body.get("image")) or ""):
                    continue
                kept = _kept_off(Plugin(manifest, pod, container, GPU, ()), together)
                if kept is not None:
                    who, key = kept
                    found = f"{who.title} tolerates {shown(key)} and this does not: no metrics"
                    path = (*pod.path[1:], "tolerations")
                    remedy = f"tolerate {key} here too"
                    finding = manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING)
                    yield manifest, finding


def takers(together: ManifestSet) -> Iterator[Found]:
    """Warn of a DaemonSet that takes devices itself, of which jobs then find too few on each node.

    Kubernetes, "Schedule GPUs": a device is one container's. NVIDIA/dcgm-exporter, deployment, and
    aws-samples/aws-efa-eks: agents see all devices of the node without asking for one.
    """
    for manifest in together.of("DaemonSet"):
        for pod in manifest.pods:
            whole = _whole_nodes(manifest, pod, together)
            for container in pod.containers:
                agent = _AGENT.search(text(container.body.get("image")) or "")
                for device in (GPU, EFA):
                    amount = container.amount(device)
                    # An init container gives its devices back.
                    if not amount or container.is_init or not (agent or whole):
                        continue
                    who = f": {whole.title} asks for all of them" if whole else ""
                    found = f"each node has {amount} less for jobs{who}"
                    what = "an agent sees all without" if agent else "or keep it off their nodes"
                    path = (*container.path[1:], "resources", "limits", device)
                    remedy = f"remove it: {what}" if agent else f"remove it, {what}"
                    finding = manifest.find(Code.DEVICE_PLUGIN, path, found, remedy, Level.WARNING)
                    yield manifest, finding


def _whole_nodes(manifest: Manifest, pod: Pod, together: ManifestSet) -> Manifest | None:
    """Return a job beside that needs all GPUs of nodes that a DaemonSet runs on."""
    for job in together.objects:
        for other in job.pods if job.is_job and is_near(manifest, job) else ():
            types = instance_types(other)
            asked = sum(int(each.amount(GPU) or 0) for each in other.containers)
            if types and may_meet(pod, other) and all(each.gpus == asked for each in types):
                return job
    return None


def may_meet(one: Pod, other: Pod) -> bool:
    """Tell whether two pods may be on one node; selectors with different values keep them apart."""
    first, second = (mapping(each.spec.get("nodeSelector")) or {} for each in (one, other))
    if any(key in second and second[key] != value for key, value in first.items()):
        return False
    # Affinities may say anything, so only equal ones are known to meet.
    return one.spec.get("affinity") == other.spec.get("affinity")


def _kept_off(plugin: Plugin, together: ManifestSet) -> tuple[Manifest, str] | None:
    """Return an object whose pods ask for the device, and a taint that only they tolerate."""
    tolerated = items(plugin.pod.spec.get("tolerations"))
    if tolerated is None:
        return None
    own = [mapping(each) or {} for each in tolerated]
    if any(each.get("operator") == "Exists" and not each.get("key") for each in own):
        return None
    keys = {text(each.get("key")) for each in own}
    for manifest in together.objects:
        for pod in manifest.pods if is_near(plugin.manifest, manifest) else ():
            if pod.names(plugin.device):
                for each in items(pod.spec.get("tolerations")) or []:
                    key = _key(mapping(each) or {})
                    if key is not None and key not in keys and key.lower() not in NO_DEVICES:
                        return manifest, key
    return None


def is_near(one: Manifest, other: Manifest) -> bool:
    """Tell objects of one folder, or of folders beside each other, from other examples."""
    folders = [posixpath.dirname(each.file) for each in (one, other)]
    return len({*folders}) == 1 or len({posixpath.dirname(each) for each in folders}) == 1


def _key(toleration: Mapping[str, Json]) -> str | None:
    """Return the key of a taint that keeps pods from being placed; not one of Kubernetes' own."""
    key = text(toleration.get("key")) or ""
    placing = toleration.get("effect") in (None, "", "NoSchedule")
    return key if key and placing and ".kubernetes.io/" not in key else None
