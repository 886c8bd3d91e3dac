"""Rules over pods and the pools of nodes that they name: Karpenter's and eksctl's, in one set."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.config.load import Json
from megatron_eks.rules.hardware import TYPE_LABELS, type_names
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.objects.node_pools import Taint, tolerates, wanted_labels
from megatron_eks.rules.values import is_absent, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_KARPENTER = "karpenter.sh/nodepool"
_EKSCTL = ("eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name")
POOL_NAMES = (_KARPENTER, *_EKSCTL)
_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
_EQUAL = (None, "", "Equal")


@dataclass(frozen=True)
class Pool:
    """A pool of nodes that an object of the set makes."""

    manifest: Manifest
    title: str
    labels: "dict[str, str]"
    types: frozenset[str]
    taints: tuple[Taint, ...]

    def is_named(self, pod: Pod) -> bool:
        """Tell whether a pod goes to this pool alone, by its name or by a label of its nodes."""
        return any(self.labels.get(key) in values for key, values in wanted_labels(pod))


def other_tolerations(together: ManifestSet) -> Iterator[Found]:
    """Warn of pods whose tolerations do not fit the taints of the pool that they name.

    Kubernetes, "Taints and Tolerations": key, value and effect have to be the same. EKS User Guide,
    "platform versions": ExtendedResourceToleration adds what the taint of a device needs.
    """
    pools = [each for manifest in together.objects for each in pools_of(manifest)]
    for manifest in together.objects if pools else ():
        for pod in manifest.pods:
            named = [pool for pool in pools if pool.is_named(pod)]
            fitting = named or [pool for pool in pools if type_names(pod) & pool.types]
            kept = [(pool, taint) for pool in fitting if (taint := _keeps_away(pool, pod))]
            if kept and len(kept) == len(fitting):
                sure = bool(named) or _is_for_nobody(kept[0][0], manifest, pools, together)
                yield from _kept(manifest, pod, *kept[0], sure=sure)


def _is_for_nobody(
    pool: Pool, manifest: Manifest, pools: Sequence[Pool], together: ManifestSet
) -> bool:
    """Tell whether no pod at hand gets into a pool that is chosen by its type alone.

    Nodes of this type may come from elsewhere, so that its own pods have to be at hand too: where
    some get in, it is theirs. Where another pool does not say its types, that one may be meant.
    """
    if not all(each.types and in_one_folder(manifest, each.manifest) for each in pools):
        return False
    return all(_keeps_away(pool, pod) for each in together.objects for pod in each.pods)


def _kept(manifest: Manifest, pod: Pod, pool: Pool, taint: Taint, *, sure: bool) -> Iterator[Found]:
    path = (*pod.path[1:], "tolerations")
    remedy = f"write operator: Exists for {taint.key}, or value: {shown(taint.value)}"
    device = pod.names(taint.key) and taint.effect == "NoSchedule"
    end = "only what EKS adds for the device lets it in" if device else "no such node takes it"
    for index, value in enumerate(items(pod.spec.get("tolerations")) or []):
        body = mapping(value) or {}
        if text(body.get("key")) == taint.key and not _is_unknown(body):
            same = (text(body.get("value")) or "") == taint.value or _exists(body)
            what = text(body.get("effect" if same else "value")) or ""
            found = f"{shown(what)}, and {pool.title} has the taint {taint}: {end}"
            if same:
                remedy = f"write effect: {taint.effect}"
            key = "effect" if same else "value"
            place = (*path, index, key)
            yield (
                manifest,
                manifest.find(Code.UNTOLERATED, place, found, remedy, Level.WARNING),
            )
            return
    if sure and not device:
        found = f"{pool.title} has the taint {taint}: {end}"
        remedy = f"tolerate {taint.key} with effect {taint.effect}"
        yield manifest, manifest.find(Code.UNTOLERATED, path, found, remedy, Level.WARNING)


def _exists(toleration: "Mapping[str, Json]") -> bool:
    return toleration.get("operator") == "Exists"


def _is_unknown(toleration: "Mapping[str, Json]") -> bool:
    """Tell a toleration that nobody can judge, or that another rule finds wrong."""
    value = toleration.get("value")
    odd = not is_absent(value) and text(value) is None
    return odd or not (_exists(toleration) or text(toleration.get("operator")) in _EQUAL)


def _keeps_away(pool: Pool, pod: Pod) -> Taint | None:
    given = [mapping(each) or {} for each in items(pod.spec.get("tolerations")) or []]
    if any(_is_unknown(each) for each in given):
        return None
    kept = (taint for taint in pool.taints if not any(tolerates(each, taint) for each in given))
    return next(kept, None)


def pools_of(manifest: Manifest) -> Iterator[Pool]:
    """Return the pools of nodes that an object makes: Karpenter's one, or the groups of eksctl."""
    if (manifest.group, manifest.kind) == ("karpenter.sh", "NodePool"):
        template = mapping(manifest.spec.get("template")) or {}
        spec = mapping(template.get("spec")) or {}
        labels = _texts((mapping(template.get("metadata")) or {}).get("labels"))
        requirements = [mapping(each) or {} for each in items(spec.get("requirements")) or []]
        types = [
            name
            for each in requirements
            if each.get("key") in TYPE_LABELS and each.get("operator") == "In"
            for name in items(each.get("values")) or []
        ]
        if manifest.name is not None:
            labels[_KARPENTER] = manifest.name
            yield Pool(manifest, manifest.title, labels, _names(types), _taints(spec.get("taints")))
    if (manifest.group, manifest.kind) == ("eksctl.io", "ClusterConfig"):
        for key in ("managedNodeGroups", "nodeGroups"):
            for value in items(manifest.body.get(key)) or []:
                group = mapping(value) or {}
                name = text(group.get("name"))
                labels = _texts(group.get("labels"))
                if name is not None:
                    labels |= dict.fromkeys(_EKSCTL, name)
                    types = [group.get("instanceType"), *(items(group.get("instanceTypes")) or [])]
                    taints = _taints(group.get("taints"))
                    title = f"node group {shown(name)}"
                    yield Pool(manifest, title, labels, _names(types), taints)


def _texts(value: Json) -> "dict[str, str]":
    return {key: said for key, each in (mapping(value) or {}).items() if (said := text(each))}


def _names(values: "list[Json]") -> frozenset[str]:
    return frozenset(name for each in values if (name := text(each)))


def _taints(value: Json) -> tuple[Taint, ...]:
    """Return the taints; eksctl also takes `key: value:effect`."""
    listed = [mapping(each) or {} for each in items(value) or []]
    for key, said in (mapping(value) or {}).items():
        first, _, effect = (text(said) or "").rpartition(":")
        listed.append({"key": key, "value": first, "effect": effect})
    found = []
    for body in listed:
        name, kept_off = text(body.get("key")), text(body.get("effect"))
        if name is not None and kept_off in _KEEPS_AWAY:
            found.append(Taint(name, text(body.get("value")) or "", kept_off))
    return tuple(found)
