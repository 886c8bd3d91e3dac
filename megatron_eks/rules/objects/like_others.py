"""Rules over the one object of a set that is not like the others: label, toleration."""

import re
from collections import Counter
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.known_keys import KNOWN_DOMAINS
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, items, mapping, text
from megatron_eks.rules.workloads import Manifest, Pod

_OTHERS = 3
"""How many others make a custom."""
_FLAGS = ("", "false", "true")


def selectors(together: ManifestSet) -> Iterator[Found]:
    """Warn of a label of nodes that one object alone writes, and many others nearly so.

    Kubernetes, "Assigning Pods to Nodes": a pod whose nodeSelector no node meets stays Pending.
    """
    users = Counter(
        (key, text(value) or "")
        for manifest in together.objects
        for key, value in {k: v for pod in manifest.pods for k, v in _selector(pod).items()}.items()
    )
    keys = {key for key, _ in users}
    for manifest in together.objects if len(keys) > 1 else ():
        for pod in manifest.pods:
            for key, value in _selector(pod).items():
                said = text(value) or ""
                if sum(count for (name, _), count in users.items() if name == key) > 1:
                    continue
                near = [
                    (other, count)
                    for (other, given), count in users.items()
                    if other != key and given == said and count >= _OTHERS and _alike(key, other)
                ]
                ours = key.partition("/")[0] not in KNOWN_DOMAINS
                if near and ours and said not in _FLAGS and not is_placeholder(key):
                    other, count = near[0]
                    found = f"{key} is the label of no other selector, and {count} objects have "
                    found += f"{other}: {said}"
                    path = (*pod.path[1:], "nodeSelector", key)
                    finding = manifest.find(
                        Code.NODE_SELECTOR, path, found, f"write {other}", Level.WARNING
                    )
                    yield manifest, finding


def tolerations(together: ManifestSet) -> Iterator[Found]:
    """Warn of pods without the toleration that all others have which select the same nodes.

    Kubernetes, "Taints and Tolerations". EKS adds a toleration for a device that the pod itself
    asks for (ExtendedResourceToleration), and for no other.
    """
    groups: dict[tuple[tuple[str, str], ...], list[tuple[Manifest, Pod]]] = {}
    for manifest in together.objects:
        for pod in manifest.pods:
            chosen = sorted((key, text(each) or "") for key, each in _selector(pod).items())
            if chosen:
                groups.setdefault(tuple(chosen), []).append((manifest, pod))
    for same in groups.values():
        owners = len({id(manifest) for manifest, _ in same})
        kept = [(manifest, pod, _keys(pod)) for manifest, pod in same if owners > _OTHERS]
        known = Counter(key for *_, keys in kept for key in keys)
        for manifest, pod, keys in kept:
            # An empty key stands for all of them, in this pod or in another one.
            custom = [key for key in known if known[key] == len(kept) - 1 - known[""]]
            lacking = [key for key in custom if key not in keys and "" not in keys]
            for key in sorted(lacking) if len(kept) - known[""] > 1 else ():
                if pod.names(key) or key.startswith("node.kubernetes.io/"):
                    continue
                found = f"no toleration of {key}, which the {owners - 1} other objects have that "
                found += "select these nodes: it stays Pending where they have this taint"
                path = (*pod.path[1:], "tolerations")
                remedy = f"tolerate {key} with operator: Exists"
                finding = manifest.find(Code.UNTOLERATED, path, found, remedy, Level.WARNING)
                yield manifest, finding


def _selector(pod: Pod) -> "dict[str, Json]":
    return dict(mapping(pod.spec.get("nodeSelector")) or {})


def _keys(pod: Pod) -> set[str]:
    """Return the keys that a pod tolerates; an empty one for all of them."""
    listed = [mapping(each) or {} for each in items(pod.spec.get("tolerations")) or []]
    return {text(each.get("key")) or "" for each in listed}


def _alike(one: str, other: str) -> bool:
    """Tell whether two keys are one but for a letter too many, for two in turn, or for dashes.

    Another letter in the place of one may well tell two pools apart.
    """
    plain, known = (re.sub(r"[-_.]", "", each).lower() for each in (one, other))
    short, long = sorted((plain, known), key=len)
    missing = len(long) - len(short) == 1 and any(
        long[:index] + long[index + 1 :] == short for index in range(len(long))
    )
    turned = len(plain) == len(known) and sorted(plain) == sorted(known)
    return plain == known or missing or turned
