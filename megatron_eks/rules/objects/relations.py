"""Rules over objects that refer to each other: names, keys, claims and volumes."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.quantity import quantity
from megatron_eks.rules.objects.made_secrets import secrets_made
from megatron_eks.rules.objects.manifest_set import (
    Found,
    ManifestSet,
    Reference,
    beside_in_set,
    in_one_folder,
    references,
    renamed_by_kustomize,
)
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_CLOSE = 0.8
# Kubernetes, "Using RBAC Authorization", user-facing roles: they are in every cluster, as system:
# is what else it brings.
_EVERYWHERE = frozenset({"admin", "cluster-admin", "edit", "view"})
# Whoever makes one of these for a set of jobs makes all that they name; of others there are more.
_MADE_TOGETHER = (
    *("LocalQueue", "PersistentVolumeClaim", "PodGroup", "PriorityClass"),
    "WorkloadPriorityClass",
)
# One of these that nobody names was made for whoever names another.
_FOR_ONE = ("ClusterQueue", "PersistentVolume", "Role")
_FSX = "fsx.csi.aws.com"
_FOR_MANY = (_FSX, "efs.csi.aws.com", "fsx.openzfs.csi.aws.com")
# KubeVirt's importer and Fluid make a claim of their own name.
_MAKE_CLAIMS = ("DataVolume", "Dataset")


def named_objects(together: ManifestSet) -> Iterator[Found]:
    """Warn of a name that only objects beside it nearly bear, and refuse a key that is missing.

    Kubernetes, "Configure a Pod to Use a ConfigMap": the pod waits for what is not there. What a
    set does not hold may be in the cluster already, so silence is the rule: a finding needs the
    name in another namespace, a name much like it, a namespace that the set itself makes, or others
    of a kind that is made with its jobs: claims in that namespace, priority classes anywhere.
    """
    for manifest in together.objects:
        for reference in references(manifest):
            target = together.named(manifest, reference.kind, reference.name)
            given = reference.kind == "ClusterRole" and (
                reference.name in _EVERYWHERE or reference.name.startswith("system:")
            )
            if target is None and not given:
                yield from _missing(manifest, reference, together)
            elif target is not None:
                yield from _missing_keys(manifest, reference, target)


# Who finds an object of a kind, if not pods: all of its own namespace.
_WHO = {
    "Role": "bindings of that namespace",
    "LocalQueue": "jobs of that namespace",
}


def _missing(manifest: Manifest, reference: Reference, together: ManifestSet) -> Iterator[Found]:
    elsewhere = [
        each
        for each in together.of(reference.kind)
        if each.name == reference.name and _is_meant(manifest, each, together)
    ]
    here = [each.name for each in together.beside(manifest, reference.kind) if each.name]
    beside = [each for each in here if each not in _mounted_too(manifest, reference)]
    close = get_close_matches(reference.name, beside, 1, _CLOSE)
    # An account is made with its namespace; of other kinds there may be some already.
    made_here = together.makes_namespace(manifest.namespace) and (
        bool(here) or reference.kind == "ServiceAccount"
    )
    made_here = made_here or (
        reference.kind in _MADE_TOGETHER
        and any(
            _surely_beside(manifest, each) for each in together.beside(manifest, reference.kind)
        )
    )
    lone = together.unnamed(manifest, reference.kind) if reference.kind in _FOR_ONE else []
    if reference.kind == "ConfigMap":
        # Of these there are more; one that is called by a part of the name is meant.
        others = together.unnamed(manifest, reference.kind)
        lone = [each for each in others if each in reference.name or reference.name in each]
    # A class whose name the API server refuses is a finding of its own.
    refused = reference.kind == "PriorityClass" and f"system-{reference.name}" in beside
    made = _is_made_by(manifest, reference, together) or renamed_by_kustomize(reference, together)
    if refused or (not elsewhere and made):
        return
    kind, name = reference.kind, shown(reference.name)
    if elsewhere:
        space = shown(elsewhere[0].namespace)
        who = _WHO.get(reference.kind, "its own pods")
        found = f"{kind} {name} is in namespace {space}, and only {who} reach it"
        remedy = "put both into one namespace"
        if manifest.kind.endswith("RoleBinding") and kind == "ServiceAccount":
            found = f"{kind} {name} is in namespace {space}, and the binding looks in its own"
            remedy = f"write namespace: {elsewhere[0].namespace} in the subject"
    elif close or made_here or lone:
        found = f"no {kind} {name} among these objects"
        made = together.makes_namespace(manifest.namespace)
        nothing = "add it beside the namespace" if made else "add it, unless it is there already"
        there = f"there: {', '.join(sorted(beside))}" if beside else nothing
        there = f"there: {lone[0]}, which nobody names" if lone else there
        remedy = f"did you mean {close[0]}?" if close else there
    else:
        return
    finding = manifest.find(Code.MISSING_OBJECT, reference.path, found, remedy, Level.WARNING)
    yield manifest, finding


def _mounted_too(manifest: Manifest, reference: Reference) -> set[str]:
    """Return the other claims of one pod: each is mounted once, and none is a slip of another."""
    if reference.kind != "PersistentVolumeClaim" or "volumes" not in reference.path:
        return set()
    pod = reference.path[: reference.path.index("volumes")]
    return {
        each.name
        for each in references(manifest)
        if each.kind == reference.kind and each.path[: len(pod)] == pod
    }


def _is_meant(manifest: Manifest, other: Manifest, together: ManifestSet) -> bool:
    """Tell whether an object of another namespace may be the one that is named."""
    if together.makes_namespace(manifest.namespace):
        return in_one_folder(manifest, other)
    return beside_in_set(manifest, other, together)


def _is_made_by(manifest: Manifest, reference: Reference, together: ManifestSet) -> bool:
    """Tell whether another object makes the claim: TEMPLATE-STATEFULSET-NUMBER, or of its name."""
    if reference.kind == "Secret":
        return reference.name in secrets_made(together)
    if reference.kind != "PersistentVolumeClaim":
        return False
    for each in together.beside(manifest, "StatefulSet"):
        for value in items(each.spec.get("volumeClaimTemplates")) or []:
            metadata = mapping((mapping(value) or {}).get("metadata")) or {}
            if reference.name.startswith(f"{text(metadata.get('name'))}-{each.name}-"):
                return True
    makers = [one for kind in _MAKE_CLAIMS for one in together.beside(manifest, kind)]
    return any(one.name == reference.name for one in makers)


def _surely_beside(manifest: Manifest, other: Manifest) -> bool:
    """Tell whether two objects are of one namespace, or of one file where none is named.

    A PersistentVolumeClaim without a name is made for something else.
    """
    if other.name is None or is_placeholder(other.name):
        return False
    if other.kind == "PersistentVolumeClaim" and manifest.namespace is None:
        return other.file == manifest.file
    return True


def _missing_keys(manifest: Manifest, reference: Reference, target: Manifest) -> Iterator[Found]:
    parts = [mapping(target.body.get(key)) for key in ("data", "binaryData", "stringData")]
    known = {key for part in parts for key in part or {}}
    for key in reference.keys:
        # A Secret without any data is filled later, by a person or an operator.
        if key not in known and known and None not in parts:
            found = f"{target.title} has no key {shown(key)}: the pod does not start"
            remedy = f"there: {', '.join(sorted(known))}"
            yield manifest, manifest.find(Code.MISSING_OBJECT, reference.path, found, remedy)


def claims(together: ManifestSet) -> Iterator[Found]:
    """Require of a claim what the volume that it names offers, and the other way round.

    Kubernetes, "Persistent Volumes", binding: otherwise the claim stays Pending.
    """
    for claim in together.of("PersistentVolumeClaim"):
        name = text(claim.spec.get("volumeName"))
        volume = together.named(claim, "PersistentVolume", name) if name else None
        if volume is not None:
            yield from _classes(claim, volume)
            yield from _amounts(claim, volume)
            yield from _claim_of(claim, volume)


def _wrong(claim: Manifest, path: Path, found: str, remedy: str) -> Found:
    return claim, claim.find(Code.CLAIM_AND_VOLUME, path, found, remedy)


def _classes(claim: Manifest, volume: Manifest) -> Iterator[Found]:
    wanted, offered = (each.spec.get("storageClassName") for each in (claim, volume))
    class_of = text(offered) or ""
    path = ("spec", "storageClassName")
    if is_absent(wanted):
        found = f"no storage class, so the cluster's default, and {volume.title} has "
        found += shown(class_of) if class_of else "none"
        finding = claim.find(
            Code.CLAIM_AND_VOLUME,
            path,
            found,
            f'write storageClassName: "{class_of}"',
            Level.ERROR if class_of else Level.WARNING,
        )
        yield claim, finding
    elif isinstance(wanted, str) and wanted != class_of and not is_placeholder(wanted):
        found = f"storage class {shown(wanted)}, and {volume.title} has {shown(class_of)}"
        yield _wrong(claim, path, found, "write the same in both, or leave both empty")


def _amounts(claim: Manifest, volume: Manifest) -> Iterator[Found]:
    modes = [text(each) for each in items(volume.spec.get("accessModes")) or []]
    for index, each in enumerate(items(claim.spec.get("accessModes")) or []):
        mode = text(each)
        if mode is not None and modes and mode not in modes:
            found = f"{mode}, which {volume.title} does not offer"
            remedy = f"use {', '.join(sorted(filter(None, modes)))}"
            many = mode == "ReadWriteMany"
            if many and (mapping(volume.spec.get("csi")) or {}).get("driver") in _FOR_MANY:
                remedy = f"write {mode} there: its file system takes many nodes"
            yield _wrong(claim, ("spec", "accessModes", index), found, remedy)
    resources = mapping(claim.spec.get("resources")) or {}
    written = (mapping(resources.get("requests")) or {}).get("storage")
    capacity = (mapping(volume.spec.get("capacity")) or {}).get("storage")
    wanted, offered = quantity(written), quantity(capacity)
    if wanted is not None and offered is not None and wanted > offered:
        found = f"{shown(written)} wanted, and {volume.title} has {shown(capacity)}"
        path = ("spec", "resources", "requests", "storage")
        yield _wrong(claim, path, found, "ask for no more than the volume has")


def _claim_of(claim: Manifest, volume: Manifest) -> Iterator[Found]:
    kept_for = mapping(volume.spec.get("claimRef")) or {}
    name, space = text(kept_for.get("name")), text(kept_for.get("namespace"))
    other_name = name is not None and name != claim.name
    other_space = space is not None and claim.namespace is not None and space != claim.namespace
    if other_name or other_space:
        found = f"{volume.title} is kept for {space or '?'}/{name or '?'}"
        yield _wrong(claim, ("spec", "volumeName"), found, "name this claim in its claimRef")


def twice(together: ManifestSet) -> Iterator[Found]:
    """Refuse two objects of one kind and name: the second overwrites the first.

    Kubernetes, "Object Names and IDs". Judged within a file only: overlays repeat names.
    """
    seen: set[tuple[str, str, str | None, str]] = set()
    for manifest in together.objects:
        if manifest.name is None or not manifest.file or is_placeholder(manifest.name):
            continue
        key = (
            manifest.file,
            f"{manifest.group}/{manifest.kind}",
            manifest.namespace,
            manifest.name,
        )
        if key in seen:
            found = f"a second {manifest.title} in this file overwrites the first"
            path = ("metadata", "name")
            remedy = "remove it, or give it another name"
            yield manifest, manifest.find(Code.DUPLICATE_OBJECT, path, found, remedy)
        seen.add(key)
