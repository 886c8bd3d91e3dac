"""Rules over the namespaces of objects that belong together."""

import posixpath
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.objects.manifest_set import (
    Found,
    ManifestSet,
    beside_in_set,
    references,
)
from megatron_eks.rules.values import is_absent, mapping, shown
from megatron_eks.rules.workloads import Manifest

_CLOSE = 0.92
_PLACE = ("metadata", "namespace")
# Kubernetes API reference, of those that training needs: objects of a namespace.
_NAMESPACED = frozenset(
    {
        *("ConfigMap", "CronJob", "DaemonSet", "Deployment", "Job", "LimitRange", "LocalQueue"),
        *("MPIJob", "NetworkPolicy", "PersistentVolumeClaim", "Pod", "PodDisruptionBudget"),
        *("PyTorchJob", "ResourceQuota", "Role", "RoleBinding", "Secret", "Service"),
        *("ServiceAccount", "StatefulSet", "TrainJob"),
    }
)
# So many beside it make a rule of what one leaves out.
_OTHERS = 3
_SYSTEM = ("default", "kube-")


def slips(together: ManifestSet) -> Iterator[Found]:
    """Warn of a namespace that is nearly one which these objects make, or that every cluster has.

    Kubernetes, "Namespaces": the API server refuses an object of a namespace that is not there.
    """
    made = {each.name for each in together.of("Namespace") if each.name}
    known = [*made, "kube-system"]
    for manifest in together.objects:
        name = manifest.namespace
        close = get_close_matches(name, known, 1, _CLOSE) if name and name not in known else []
        if name and close and _letters(name) != _letters(close[0]):
            found = f"no namespace {shown(name)} among these objects"
            remedy = f"did you mean {close[0]}?"
            yield manifest, manifest.find(Code.MISSING_OBJECT, _PLACE, found, remedy, Level.WARNING)


def _letters(name: str) -> str:
    """Return a name without digits: team-1 and team-2 are two names, and no slip."""
    return "".join(each for each in name if not each.isdigit())


def elsewhere(together: ManifestSet) -> Iterator[Found]:
    """Warn of a namespace that no object makes, where those beside it are in one that is made.

    Kubernetes, "Namespaces": names of claims, Secrets and accounts are looked up in the object's
    own; kubectl refuses an object whose namespace does not exist.
    """
    made = {each.name for each in together.of("Namespace") if each.name}
    files: dict[str, set[str]] = {}
    used: dict[str, set[str]] = {}
    for each in together.objects:
        if each.namespace is not None:
            used.setdefault(each.namespace, set()).add(each.file)
            files.setdefault(posixpath.dirname(each.file), set()).add(each.namespace)
    for manifest in together.objects:
        space = manifest.namespace
        if space is None or space in made or space.startswith(_SYSTEM) or not manifest.pods:
            continue
        folder = posixpath.dirname(manifest.file)
        near = [each for each in made & files[folder] if len(used[each]) >= _OTHERS]
        own = [each for each in near if each.split("-")[0] == space.split("-")[0]]
        if len(used[space]) == 1 and manifest.file and len(own) == 1:
            found = f"nothing here makes namespace {shown(space)}, and the objects beside it are "
            found += f"in {own[0]}"
            path, remedy = ("metadata", "namespace"), f"write {own[0]}, or make the namespace"
            finding = manifest.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
            yield manifest, finding


def unsaid(together: ManifestSet) -> Iterator[Found]:
    """Warn of an object without a namespace that needs, or is needed by, objects of one.

    kubectl, "kubectl apply": without --namespace it goes into that of the current context, often
    `default`; a Kustomization says it elsewhere.
    """
    if together.of("Kustomization"):
        return
    named: dict[tuple[str, str | None], list[Manifest]] = {}
    for each in together.objects:
        named.setdefault((each.kind, each.name), []).append(each)
    told: dict[int, tuple[Manifest, str, str]] = {}
    for manifest in together.objects:
        for reference in references(manifest):
            there = named.get((reference.kind, reference.name), [])
            spaces = {each.namespace for each in there}
            pair = (manifest, there[0]) if len(spaces) == 1 else None
            if manifest.namespace is not None:
                silent = [each for each in there if _says_nothing(each)]
                only = len(silent) == 1 and manifest.namespace not in spaces
                pair = (silent[0], manifest) if only else None
            if pair is not None and _says_nothing(pair[0]) and _is_near(*pair, together):
                one, other = pair
                told.setdefault(id(one), (one, other.title, other.namespace or ""))
    for one, other in _alone(together):
        told.setdefault(id(one), (one, other.title, other.namespace or ""))
    for manifest, title, space in told.values():
        found = f"no namespace, so that of kubectl's context, and {title} is in {shown(space)}"
        remedy = f"write namespace: {space}"
        yield manifest, manifest.find(Code.MISSING_OBJECT, _PLACE, found, remedy, Level.WARNING)


def _is_near(silent: Manifest, other: Manifest, together: ManifestSet) -> bool:
    return other.namespace not in (None, "default") and beside_in_set(silent, other, together)


def _alone(together: ManifestSet) -> Iterator[tuple[Manifest, Manifest]]:
    """Return the one object of a file, or one with pods of a folder, that names no namespace.

    All others there name the same.
    """
    groups: dict[str, list[Manifest]] = {}
    for each in together.objects:
        if each.kind in _NAMESPACED:
            groups.setdefault(each.file, []).append(each)
        if each.pods and each.file:
            groups.setdefault(f"{posixpath.dirname(each.file)}/", []).append(each)
    for objects in groups.values():
        silent = [each for each in objects if _says_nothing(each)]
        others = [each for each in objects if each.namespace]
        spaces = {each.namespace for each in others}
        if len(silent) == 1 and len(others) >= _OTHERS and len(spaces - {"default"}) == 1:
            yield silent[0], others[0]


def _says_nothing(manifest: Manifest) -> bool:
    given = (mapping(manifest.body.get("metadata")) or {}).get("namespace")
    return manifest.kind in _NAMESPACED and is_absent(given)
