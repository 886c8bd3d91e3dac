"""Rules over pods and the nodes they need: labels, taints, and what a node offers."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from fractions import Fraction

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.hardware import TYPE_LABELS, instance_types, type_names
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.node_labels import wanted
from megatron_eks.rules.objects.node_pools import NodePool, wanted_labels
from megatron_eks.rules.values import is_placeholder, shown
from megatron_eks.rules.workloads import EFA, GPU, Manifest, Pod

_MIB = 2**20
_CLOSE = 0.8
# The families of EC2 with NVIDIA's GPUs, older ones that the catalogue lacks included.
_WITH_GPUS = re.compile(r"[gp][0-9]")
# Without these on a node, nobody can use its GPUs, its EFA devices or its file system.
_EFA_PLUGIN = re.compile(r"(^|/)aws-efa-k8s-device-plugin[:@]")
_AGENT = re.compile(r"(^|/)(k8s-device-plugin|aws-efa-k8s-device-plugin|aws-fsx-csi-driver)[:@]")
_PLUGIN = re.compile(r"(^|/)(k8s-device-plugin|aws-efa-k8s-device-plugin)[:@]")
_HYPERPOD = "ml."
_PREFERENCE = "preferredDuringSchedulingIgnoredDuringExecution"


def selected_nodes(together: ManifestSet) -> Iterator[Found]:
    """Warn of a node selector that no node group beside it meets.

    Kubernetes, "Assigning Pods to Nodes": the pod stays Pending. Nodes may come from elsewhere, so
    a finding needs a label that a group has with another value, or by nearly the same name.
    """
    pools = together.node_pools
    for manifest in together.objects if pools else ():
        for pod in manifest.pods:
            if any(pool.may_run(pod) for pool in pools):
                continue
            for key, values in wanted_labels(pod):
                found = _unmet(key, values, pools)
                if found and not any(is_placeholder(each) for each in (key, *values)):
                    # What a device plugin does not reach is told with the nodes that lack it.
                    if key in TYPE_LABELS and _is_plugin(pod):
                        break
                    path = _place_of(key, values, pod)
                    said = ", ".join(values)
                    code, written = Code.NODE_SELECTOR, f"no node group has {key}: {said}"
                    yield manifest, manifest.find(code, path, written, found, Level.WARNING)
                    break


def _is_plugin(pod: Pod) -> bool:
    return any(_PLUGIN.search(str(each.body.get("image"))) for each in pod.containers)


def _place_of(key: str, values: list[str], pod: Pod) -> Path:
    """Return where a pod demands a label: in its selector, or in a term of its affinity."""
    for path, name, given in wanted(pod):
        if (name, given) == (key, values) and _PREFERENCE not in path and "affinity" in path:
            return path[1:]
    return (*pod.path[1:], "nodeSelector")


def types_of_hyperpod(together: ManifestSet) -> Iterator[Found]:
    """Warn of pods kept to a type as SageMaker HyperPod names it, beside a node group of that type.

    SageMaker AI Developer Guide, "HyperPod nodes": their label begins with ml., which that of a
    node of EKS never does. Groups beside a HyperPod cluster say nothing.
    """
    for manifest in together.objects if together.node_pools else ():
        for pod in manifest.pods:
            named = [
                (path, values)
                for path, key, values in wanted(pod)
                if key in TYPE_LABELS and values and _PREFERENCE not in path
            ]
            every = {each for _, values in named for each in values}
            # One more term of an affinity is one more way in.
            if not type_names(pod) or not all(each.startswith(_HYPERPOD) for each in every):
                continue
            meant = {each.removeprefix(_HYPERPOD) for each in every}
            groups = [each for each in together.node_pools if meant & {*(each.types or ())}]
            for path, values in named[:1] if groups else ():
                found = f"{shown(values[0])} is a type of SageMaker HyperPod, and no node of group "
                found += f"{shown(groups[0].name)} has that label: no pod goes there"
                remedy = f"write {values[0].removeprefix(_HYPERPOD)}"
                yield (
                    manifest,
                    Finding(Code.NODE_SELECTOR, path, found, remedy, Level.WARNING),
                )


def _unmet(key: str, values: list[str], pools: list[NodePool]) -> str | None:
    """Say what node groups have instead of a label, if they have anything like it."""
    there = {value for pool in pools if (value := pool.value(key)) is not None}
    if key in TYPE_LABELS:
        there = {name for pool in pools for name in pool.types or ()}
    if there & set(values) or "any" in there:
        return None
    if there:
        return f"there: {', '.join(sorted(there))}"
    names = {name for pool in pools for name in pool.labels or ()}
    close = get_close_matches(key, names, 1, _CLOSE)
    return f"did you mean {close[0]}?" if close else None


def taints(together: ManifestSet) -> Iterator[Found]:
    """Warn of pods that every node group for them keeps away, and of device plugins kept off one.

    Kubernetes, "Taints and Tolerations"; "Device Plugins": a node offers no device without one.
    """
    pools = together.node_pools
    for manifest in together.objects if pools else ():
        for pod in manifest.pods:
            fitting = [pool for pool in pools if pool.may_run(pod) and _may_offer(pool, pod)]
            kept = [(pool, taint) for pool in fitting if (taint := pool.untolerated(pod))]
            agent = manifest.kind == "DaemonSet" and any(
                _AGENT.search(str(each.body.get("image"))) for each in pod.containers
            )
            relevant = [each for each in kept if each[0].instances] if agent else kept
            if not relevant or (len(kept) < len(fitting) and not agent):
                continue
            pool, taint = relevant[0]
            what = "it does not run there" if agent else "it stays Pending"
            found = f"node group {shown(pool.name)} has the taint {taint}: {what}"
            path = (*pod.path[1:], "tolerations")
            remedy = f"tolerate {taint.key} with effect {taint.effect}"
            device = _offered(pod)
            sure = device and _no_node_offers(device, [pool for pool, _ in kept], together)
            level = Level.ERROR if sure else Level.WARNING
            found += f", and no node with GPUs offers {device}" if sure else ""
            yield manifest, manifest.find(Code.UNTOLERATED, path, found, remedy, level)


def _offered(pod: Pod) -> str | None:
    """Return the device that a plugin offers, by its image."""
    for container in pod.containers:
        match = _PLUGIN.search(str(container.body.get("image")))
        if match:
            return EFA if "efa" in match[2] else GPU
    return None


def _no_node_offers(device: str, kept: list[NodePool], together: ManifestSet) -> bool:
    """Tell whether all groups with GPUs keep a device's only plugin off, and pods ask for it."""
    having = [
        pool
        for pool in together.node_pools
        if not pool.types or any(_WITH_GPUS.match(name) for name in pool.types)
    ]
    agents = [
        each for each in together.of("DaemonSet") for pod in each.pods if _offered(pod) == device
    ]
    asked = any(
        pod.names(device) and pod.names(GPU) for each in together.objects for pod in each.pods
    )
    return asked and len(agents) == 1 and bool(having) and all(pool in kept for pool in having)


def _may_offer(pool: NodePool, pod: Pod) -> bool:
    """Tell whether the group's nodes have the devices that a pod asks for, as far as known."""
    if pool.types and pod.names(GPU) and not any(_WITH_GPUS.match(name) for name in pool.types):
        return False
    return not pool.instances or not any(_missing(pod, each) for each in pool.instances)


def node_room(together: ManifestSet) -> Iterator[Found]:
    """Refuse pods that ask for more than a node of their type has, and warn of idle EFA devices.

    Kubernetes, "Resource Management for Pods and Containers": the scheduler finds no node. EKS
    User Guide, "Run machine learning training on Amazon EKS with EFA".
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            types = instance_types(pod) or _types_beside(pod, together)
            types = types or _types_with_efa(pod, together)
            level = Level.ERROR
            # The numbers of its devices name a type as well.
            if not types and not type_names(pod):
                types, level = _types_in_full(pod)
            lacks = [_missing(pod, each) for each in types]
            if types and all(lacks):
                found, remedy = (
                    f"{_lack(pod, types[0])}: the pod stays Pending",
                    _left(pod, types[0]),
                )
                yield manifest, _of_pod(manifest, pod, found, remedy, level)
            elif types and all(_idle_efa(pod, each) for each in types):
                had = types[0].efa_interfaces
                type_name = types[0].name
                found = (
                    f"{_asked(pod, EFA)} of {EFA} with all GPUs of a {type_name}, which has {had}"
                )
                yield manifest, _of_pod(manifest, pod, found, f"ask for {had}", Level.WARNING)


def _of_pod(manifest: Manifest, pod: Pod, found: str, remedy: str, level: Level) -> Finding:
    return manifest.find(Code.NODE_ROOM, (*pod.path[1:], "containers"), found, remedy, level)


def _types_beside(pod: Pod, together: ManifestSet) -> list[InstanceType]:
    """Return the types of the node groups that may run a pod for GPUs; none if one is unknown."""
    fitting = [pool for pool in together.node_pools if pool.may_run(pod)]
    if not pod.names(GPU) or not all(pool.types for pool in fitting):
        return []
    # Ordinary nodes, which the catalogue does not list, have no GPU to offer.
    return [each for pool in fitting for each in pool.instances]


def _types_with_efa(pod: Pod, together: ManifestSet) -> list[InstanceType]:
    """Return the types that the EFA device plugin beside a pod is for; none without a list."""
    if not pod.names(EFA):
        return []
    for manifest in together.of("DaemonSet"):
        for each in manifest.pods:
            if any(_EFA_PLUGIN.search(str(one.body.get("image"))) for one in each.containers):
                return instance_types(each)
    return []


def _types_in_full(pod: Pod) -> tuple[list[InstanceType], Level]:
    """Return the types all of whose GPUs and EFA devices a pod asks for, and how sure it is.

    A pool that is called after one of their families, such as p4d, leaves that one. A larger type
    may take the pod, with devices that nobody uses: few GPUs may well be a part of it.
    """
    gpus, devices = _asked(pod, GPU), _asked(pod, EFA)
    full = [
        each
        for each in INSTANCES.values()
        if gpus == each.gpus and devices == each.efa_interfaces and devices
    ]
    values = " ".join(value for _, listed in wanted_labels(pod) for value in listed)
    called = [
        each
        for each in full
        if re.search(rf"(?<![a-z0-9]){each.name.partition('.')[0]}(?![a-z0-9])", values)
    ]
    if any(not _missing(pod, each) for each in INSTANCES.values()):
        most = max(each.gpus for each in INSTANCES.values())
        return [each for each in called or full if each.gpus == most], Level.WARNING
    return called or full, Level.ERROR


def _missing(pod: Pod, instance: InstanceType) -> str | None:
    """Return what a node of a type has too little of; its memory is more than what it offers."""
    for name, most in _had(instance).items():
        asked = _asked(pod, name)
        # A node keeps some of both for itself, so all of it is too much as well.
        if asked > most or (asked == most and name in {"cpu", "memory"}):
            return name
    return None


def _had(instance: InstanceType) -> dict[str, Fraction]:
    return {
        GPU: Fraction(instance.gpus),
        EFA: Fraction(instance.efa_interfaces),
        "cpu": Fraction(instance.vcpus),
        "memory": Fraction(instance.memory_mib * _MIB),
        "hugepages-2Mi": Fraction(max(instance.hugepages_mib, 0) * _MIB),
    }


def _lack(pod: Pod, instance: InstanceType) -> str:
    """Say what is asked for, and what there is."""
    name = _missing(pod, instance) or ""
    wanted, had = (_amount(each, name) for each in (_asked(pod, name), _had(instance)[name]))
    return f"{wanted} of {name}, and a {instance.name} has {had}"


def _left(pod: Pod, instance: InstanceType) -> str:
    """Say what to ask for: what the kubelet leaves to pods, or every device that there is."""
    name = _missing(pod, instance) or ""
    memory = (instance.allocatable_memory_mib - max(instance.hugepages_mib, 0)) // 1024
    left = {
        "cpu": f"about {instance.allocatable_cpu_millis // 1000}",
        "memory": f"about {memory}Gi",
    }
    had = _amount(_had(instance)[name], name)
    if name not in left and _had(instance)[name] == 0:
        return "remove it, or select a type that has it"
    return f"ask for less: {left[name]} is left to pods" if name in left else f"ask for {had}"


def _amount(size: Fraction, name: str) -> str:
    in_bytes = name in {"memory", "hugepages-2Mi"}
    return f"{float(size / 2**30):g}Gi" if in_bytes else f"{float(size):g}"


def _asked(pod: Pod, name: str) -> Fraction:
    running = [each for each in pod.containers if not each.is_init]
    return sum((each.requested(name) for each in running), Fraction(0))


def _idle_efa(pod: Pod, instance: InstanceType) -> bool:
    asked = _asked(pod, EFA)
    return _asked(pod, GPU) == instance.gpus and 0 < asked < instance.efa_interfaces


def nodes_enough(together: ManifestSet) -> Iterator[Found]:
    """Warn of jobs over more whole nodes than their node group may have.

    EKS API, NodegroupScalingConfig, maxSize: the last ranks stay Pending, and the first ones wait.
    """
    for manifest in together.objects if together.node_pools else ():
        pods = [pod for pod in manifest.pods if pod.names(GPU) and manifest.is_job]
        for pod in pods[:1]:
            pools = [pool for pool in together.node_pools if pool.may_run(pod) and pool.instances]
            whole = all(_asked(pod, GPU) == each.gpus for pool in pools for each in pool.instances)
            known = [pool.max_nodes for pool in pools if pool.max_nodes is not None]
            nodes = sum(1 if each.replicas is None else each.replicas for each in pods)
            if pools and whole and len(known) == len(pools) and nodes > sum(known):
                names = " and ".join(pool.name for pool in pools)
                found = f"{nodes} whole nodes, and node group {names} may have {sum(known)}"
                remedy = "raise MaxSize, or use fewer nodes"
                path = ("spec",)
                yield manifest, manifest.find(Code.NODES_ENOUGH, path, found, remedy, Level.WARNING)
