"""Rules over what has to run on the nodes of a pool that stands beside it: labels and taints."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.rules.hardware import TYPE_LABELS
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.named_pools import POOL_NAMES, Pool, pools_of
from megatron_eks.rules.objects.node_pools import tolerates, wanted_labels
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

# What a node with GPUs is no use without, or goes unseen without.
_AGENT = re.compile(
    r"(^|/)((nvidia-)?k8s-device-plugin|aws-efa-k8s-device-plugin|dcgm-exporter"
    r"|aws-(fsx|efs|ebs|mountpoint-s3)-csi-driver|node-feature-discovery|gpu-feature-discovery)[:@]"
)
_WITH_GPUS = re.compile(r"[gp][0-9]")


def agents(together: ManifestSet) -> Iterator[Found]:
    """Warn of a DaemonSet for GPU nodes that the taint of a pool beside it keeps off them.

    Kubernetes, "Taints and Tolerations" and "Device Plugins": a node without the plugin offers no
    device, and one without a storage driver's part mounts nothing, whatever its pods tolerate.
    """
    pools = _pools(together)
    for manifest in together.of("DaemonSet") if pools else ():
        for pod in manifest.pods:
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
