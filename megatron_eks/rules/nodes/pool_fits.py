"""Rules over what has to run on the nodes of a pool beside it: labels, taints, and room."""

import re
from collections.abc import Iterator
from fractions import Fraction

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.rules.hardware import TYPE_LABELS, type_names
from megatron_eks.rules.nodes.karpenter_fits import image_disk
from megatron_eks.rules.nodes.karpenter_pods import FAMILY, asked, class_of, requirements
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.named_pools import POOL_NAMES, Pool, other_tolerations, pools_of
from megatron_eks.rules.objects.node_pools import tolerates, wanted_labels
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, GPU, Manifest, Pod

# What a node with GPUs is no use without, or goes unseen without.
_AGENT = re.compile(
    r"(^|/)((nvidia-)?k8s-device-plugin|aws-efa-k8s-device-plugin|dcgm-exporter"
    r"|aws-(fsx|efs|ebs|mountpoint-s3)-csi-driver|node-feature-discovery|gpu-feature-discovery)[:@]"
)
_WITH_GPUS = re.compile(r"[gp][0-9]")
_CATEGORY = "karpenter.k8s.aws/instance-category"
_DISK = "ephemeral-storage"
_MIB = 2**20


def agents(together: ManifestSet) -> Iterator[Found]:
    """Warn of a DaemonSet for GPU nodes that the taint of a pool beside it keeps off them.

    Kubernetes, "Taints and Tolerations" and "Device Plugins": a node without the plugin offers no
    device, and one without a storage driver's part mounts nothing, whatever its pods tolerate.
    """
    pools = _pools(together)
    # A pool that pods name keeps them off is told of by them.
    told = [(each, finding.path) for each, finding in other_tolerations(together)] if pools else []
    for manifest in together.of("DaemonSet") if pools else ():
        for pod in manifest.pods:
            if (manifest, (manifest.title, *pod.path[1:], "tolerations")) in told:
                continue
            if not any(_AGENT.search(str(each.body.get("image"))) for each in pod.containers):
                continue
            given = [mapping(each) or {} for each in items(pod.spec.get("tolerations")) or []]
            for pool in pools:
                away = [
                    taint
                    for taint in pool.taints
                    if not any(tolerates(each, taint) for each in given)
                ]
                near = is_near(manifest, pool.manifest)
                if away and near and _has_gpus(pool) and _may_choose(pod, pool):
                    found = f"{pool.title} has the taint {away[0]}: it does not run there"
                    path = (*pod.path[1:], "tolerations")
                    remedy = f"tolerate {away[0].key} with effect {away[0].effect}"
                    if any(each.get("key") == away[0].key for each in given):
                        remedy = f"write operator: Exists for {away[0].key}, without a value"
                    finding = manifest.find(Code.UNTOLERATED, path, found, remedy, Level.WARNING)
                    yield manifest, finding
                    break


def _pools(together: ManifestSet) -> list[Pool]:
    return [pool for each in together.objects for pool in pools_of(each)]


def _has_gpus(pool: Pool) -> bool:
    return bool(pool.types) and all(_WITH_GPUS.match(name) for name in pool.types)


def _may_choose(pod: Pod, pool: Pool) -> bool:
    """Tell whether nothing that is known of a pool's nodes keeps a pod from choosing them."""
    for key, values in wanted_labels(pod):
        if key in TYPE_LABELS:
            if pool.types and pool.types.isdisjoint(values):
                return False
        elif key in pool.labels and pool.labels[key] not in values:
            return False
    return True


def labels(together: ManifestSet) -> Iterator[Found]:
    """Warn of a label that pods or a flavor demand, and that each pool beside them has otherwise.

    Kubernetes, "Assigning Pods to Nodes"; Kueue, "Resource Flavor": its nodeLabels are added to
    the pods' own selectors. Nodes may come from elsewhere, so silence where no pool names the key.
    """
    pools = _pools(together)
    for manifest in together.objects if pools else ():
        near = [pool for pool in pools if is_near(manifest, pool.manifest)]
        for path, wanted in _demands(manifest):
            for key, values in wanted:
                # Which types a DaemonSet is for, plugin_settings.kept_to_types says.
                if key in TYPE_LABELS and manifest.kind == "DaemonSet":
                    continue
                there = _there(key, near)
                odd = any(is_placeholder(each) for each in (key, *values, *there))
                if there and there.isdisjoint(values) and not odd:
                    found = f"no pool has {key}: {shown(values[0])}"
                    remedy = f"there: {', '.join(sorted(there))}"
                    finding = manifest.find(Code.NODE_SELECTOR, path, found, remedy, Level.WARNING)
                    yield manifest, finding
                    break


def _demands(manifest: Manifest) -> Iterator[tuple[Path, list[tuple[str, list[str]]]]]:
    if manifest.kind == "ResourceFlavor":
        given = mapping(manifest.spec.get("nodeLabels")) or {}
        wanted = [(key, [said]) for key, each in given.items() if (said := text(each))]
        yield ("spec", "nodeLabels"), wanted
    for pod in manifest.pods:
        yield (*pod.path[1:], "nodeSelector"), [each for each in wanted_labels(pod) if each[1]]


def _there(key: str, pools: list[Pool]) -> set[str]:
    """Return what the pools have for a label; none unless all of them say it, or one for its own.

    A type that the catalogue has is a node of this kind; of others there may be any elsewhere.
    """
    if key in TYPE_LABELS:
        known = all(pool.types for pool in pools)
        types = {name for pool in pools for name in pool.types}
        return types if known and types & INSTANCES.keys() else set()
    # A pool of another name may be there already.
    return {pool.labels[key] for pool in pools if key in pool.labels and key not in POOL_NAMES}


def room(together: ManifestSet) -> Iterator[Found]:
    """Find pods that no pool of Karpenter which they select can start a node for.

    Karpenter, "Scheduling": what the pod demands and what the pool requires must both be met, by
    one type; "NodeClasses", spec.instanceStorePolicy: the disk counts, as it is mapped
    (karpenter-provider-aws issues 7543, 3127 and 8068). By a label of the pool's own it is a
    warning: other nodes may have it.
    """
    pools = _pools(together)
    for manifest in together.objects if pools else ():
        for pod in manifest.pods if manifest.kind != "DaemonSet" else ():
            chosen, by_name = _chosen(pod, pools)
            near = all(is_near(manifest, pool.manifest) for pool in chosen)
            elsewhere = any(each.may_run(pod) for each in together.node_pools)
            said = [_refused(pod, pool, together) for pool in chosen]
            if chosen and near and not elsewhere and None not in said and said[0] is not None:
                code, part, found, remedy = said[0]
                level = Level.ERROR if by_name else Level.WARNING
                path = (*pod.path[1:], part)
                yield manifest, manifest.find(code, path, found, remedy, level)


def _chosen(pod: Pod, pools: list[Pool]) -> tuple[list[Pool], bool]:
    """Return the pools of Karpenter that a pod selects, if all that it selects are at hand."""
    for key, values in sorted(wanted_labels(pod), key=lambda each: each[0] not in POOL_NAMES):
        those = [pool for pool in pools if pool.labels.get(key) in values]
        of_karpenter = all(pool.manifest.kind == "NodePool" for pool in those)
        known = {pool.labels[key] for pool in those} == set(values)
        if those and of_karpenter and known and not any(map(is_placeholder, values)):
            return those, key in POOL_NAMES
    return [], False


def _refused(pod: Pod, pool: Pool, together: ManifestSet) -> tuple[Code, str, str, str] | None:
    """Say why a pool starts no node for a pod: code, part of the pod, reason, remedy."""
    for key, values in wanted_labels(pod):
        there = _excluded(key, values, pool.manifest)
        if there is not None:
            found = f"{key} {shown(values[0])}, and {pool.title} has {there[0]}: it starts no node "
            return Code.NODE_SELECTOR, "nodeSelector", f"{found}for the pod", there[1]
    # Nodes of a static pool are there without pods; what a plugin splits, only they show.
    if not is_absent(pool.manifest.spec.get("replicas")) or together.of("NodeOverlay"):
        return None
    lack = _lack(pod, pool) or _small_disk(pod, pool, together)
    return None if lack is None else (Code.NODE_ROOM, "containers", *lack)


def _excluded(key: str, values: list[str], pool: Manifest) -> tuple[str, str] | None:
    """Say what a pool requires a label to be, where that admits none of some values, and a remedy.

    Types have a finding of their own.
    """
    for body in requirements(pool):
        listed = [text(each) for each in items(body.get("values")) or []]
        known = [each for each in listed if each is not None and not is_placeholder(each)]
        other = body.get("key") != key or key in TYPE_LABELS or not known
        if other or len(known) < len(listed) or any(map(is_placeholder, values)):
            continue
        if body.get("operator") == "In" and not set(known) & set(values):
            said = " or ".join(known)
            return f"{said} alone", f"write {said}, or add {values[0]} to the pool"
        if body.get("operator") == "NotIn" and set(values) <= set(known):
            return f"all but {' and '.join(known)}", "write another one, or change the pool"
    return None


def _lack(pod: Pod, pool: Pool) -> tuple[str, str] | None:
    """Say of what no type of a pool has enough, and what to write."""
    if type_names(pod):
        return None
    names = [*pool.types, *asked(pool.manifest, FAMILY), *asked(pool.manifest, _CATEGORY)]
    if names and pod.names(GPU) and not any(name[:1] in "gp$<{" for name in names):
        found = f"{GPU}, and no type of {pool.title} has GPUs: it starts no node for the pod"
        return found, "name types with GPUs in the pool, or select another one"
    types = _instances(pool)
    # With devices of EFA the numbers name a type themselves: scheduling.node_room.
    counted = (GPU, EFA) if pod.names(EFA) else (GPU, "cpu", "memory")
    for name in counted if types else ():
        wanted, most = _sum(pod, name), max(_had(each, name) for each in types)
        # A node keeps some of its processors and memory for itself.
        own = name in {"cpu", "memory"}
        if wanted > most or (own and wanted == most):
            size = f"{most // 2**30} GiB" if name == "memory" else str(most)
            found = f"{name} beyond what any type of {pool.title} has, which is {size}: it starts "
            remedy = f"ask for {'less' if own else f'at most {size}'}" if most else "ask for none"
            return f"{found}no node for the pod", f"{remedy}, or name a larger type in the pool"
    return None


def _instances(pool: Pool) -> list[InstanceType]:
    """Return the only types that a pool may start, by their names or families; none if unknown."""
    families = asked(pool.manifest, FAMILY)
    found = [
        each
        for name, each in INSTANCES.items()
        if name in pool.types or (not pool.types and name.partition(".")[0] in families)
    ]
    names = {each.name for each in found}
    there = {name.partition(".")[0] for name in names}
    return found if pool.types <= names and (pool.types or set(families) <= there) else []


def _had(instance: InstanceType, name: str) -> int:
    amounts = {GPU: instance.gpus, EFA: instance.efa_interfaces, "cpu": instance.vcpus}
    return amounts.get(name, instance.memory_mib * _MIB)


def _sum(pod: Pod, name: str) -> Fraction:
    running = (each for each in pod.containers if not each.is_init)
    return sum((each.requested(name) for each in running), Fraction(0))


def _small_disk(pod: Pod, pool: Pool, together: ManifestSet) -> tuple[str, str] | None:
    used = class_of(pool.manifest, together)
    named = [each for each in together.of("EC2NodeClass") if used and each.name == used.name]
    if used is None or len(named) != 1 or not is_absent(used.spec.get("instanceStorePolicy")):
        return None
    mapped = items(used.spec.get("blockDeviceMappings")) or []
    size = image_disk(used)
    # Which of several disks Karpenter counts, this key says.
    if size is None or any("rootVolume" in (mapping(each) or {}) for each in mapped):
        return None
    if _sum(pod, _DISK) < size:
        return None
    found = f"{_DISK} beyond the disk of {pool.title}, which has {size / 2**30:g} GiB: it "
    stored = all(each.instance_store_gb for each in _instances(pool)) and _instances(pool)
    remedy = f"instanceStorePolicy: RAID0 in {used.title}, or " if stored else ""
    remedy = f"write {remedy}a larger volumeSize{'' if stored else f' in {used.title}'}"
    return f"{found}starts no node for the pod", remedy
