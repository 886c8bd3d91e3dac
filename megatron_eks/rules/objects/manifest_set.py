"""Kubernetes objects that are applied together, and what they refer to by name."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.node_pools import NodePool
from megatron_eks.rules.values import is_placeholder, items, mapping, text
from megatron_eks.rules.workloads import Manifest, Pod

Found = tuple[Manifest, Finding]
"""A finding, and the object whose line it gets."""

_CLUSTER_WIDE = frozenset(
    {
        *("ClusterQueue", "ClusterRole", "PersistentVolume", "PriorityClass", "ResourceFlavor"),
        *("ClusterTrainingRuntime", "StorageClass", "ValidatingAdmissionPolicy"),
        "WorkloadPriorityClass",
    }
)
GROUP_NAME = "scheduling.k8s.io/group-name"
"""By this annotation Volcano knows to which PodGroup a pod belongs."""
_OF_THE_SYSTEM = ("system-cluster-critical", "system-node-critical")


@dataclass(frozen=True)
class Reference:
    """A name that one object gives another."""

    path: Path
    """From the object's root."""
    kind: str
    name: str
    keys: tuple[str, ...] = ()
    """Keys that the other one must have."""


class ManifestSet:
    """Objects by kind."""

    def __init__(
        self,
        objects: Sequence[Manifest],
        node_pools: Sequence[NodePool] = (),
        laid_over: Sequence[Manifest] = (),
        absent: Mapping[str, frozenset[str]] = MappingProxyType({}),
        subjects: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    ) -> None:
        self.objects = objects
        self.laid_over = laid_over
        """The parts of objects that Kustomize lays over others."""
        self.absent = absent
        """By the file of a Kustomization: the paths in it that lead to nothing."""
        self.subjects = subjects
        """By the name of a role in the templates: the service accounts that may take it."""
        self.node_pools = list(node_pools)
        """The node groups of templates that were given with them."""

    @cached_property
    def _by_kind(self) -> dict[str, list[Manifest]]:
        found: dict[str, list[Manifest]] = {}
        for each in self.objects:
            found.setdefault(each.kind, []).append(each)
        return found

    def of(self, *kinds: str) -> list[Manifest]:
        """Return the objects of these kinds."""
        return [each for kind in kinds for each in self._by_kind.get(kind, ())]

    def beside(self, manifest: Manifest, kind: str) -> list[Manifest]:
        """Return the objects of a kind that one may refer to: in its namespace, or in none."""
        wide = kind in _CLUSTER_WIDE
        return [each for each in self.of(kind) if wide or may_share(manifest, each)]

    def named(self, manifest: Manifest, kind: str, name: str) -> Manifest | None:
        """Return the object of that name that one refers to, if it is at hand; first in its file.

        Files of one folder may be examples of which somebody takes one.
        """
        found = [each for each in self.beside(manifest, kind) if each.name == name]
        return min(
            found,
            key=lambda each: (each.file != manifest.file, not in_one_folder(each, manifest)),
            default=None,
        )

    def unnamed(self, manifest: Manifest, kind: str) -> list[str]:
        """Return the name of the one object of a kind in this file that no other names."""
        own = {each.name for each in self.beside(manifest, kind) if each.file == manifest.file}
        for other in self.objects if own else ():
            own -= {each.name for each in references(other)}
        return [each for each in own if each] if len(own) == 1 else []

    def makes_namespace(self, name: str | None) -> bool:
        """Tell whether the set makes a namespace, so that nothing was in it before.

        "system" is what Kubebuilder writes in each of its folders, for Kustomize to replace.
        """
        return any(each.name == name != "system" for each in self.of("Namespace"))


def may_share(one: Manifest, other: Manifest) -> bool:
    """Tell whether two objects may be in one namespace; without one it is said at the command.

    Then only those of one folder are meant for one command.
    """
    if None in {one.namespace, other.namespace}:
        return in_one_folder(one, other)
    return one.namespace == other.namespace


def in_one_folder(one: Manifest, other: Manifest) -> bool:
    """Tell whether two objects stand in one folder; another one may be another example."""
    return posixpath.dirname(one.file) == posixpath.dirname(other.file)


def built_by_kustomize(manifest: Manifest, together: ManifestSet) -> list[Manifest]:
    """Return the Kustomizations of an object's folder that name its file."""
    return [
        each
        for each in together.of("Kustomization", "Component")
        if in_one_folder(manifest, each)
        and any(
            posixpath.normpath(text(name) or "") == posixpath.basename(manifest.file)
            for name in items(each.body.get("resources")) or []
        )
    ]


def renamed_by_kustomize(reference: Reference, together: ManifestSet) -> bool:
    """Tell whether Kustomize may give an object this name (Kustomize, "namePrefix")."""
    ends = [
        (text(each.body.get("namePrefix")) or "", text(each.body.get("nameSuffix")) or "")
        for each in together.of("Kustomization", "Component")
    ]
    names = {each.name for each in together.of(reference.kind)}
    return any(
        f"{before}{name}{behind}" == reference.name
        for before, behind in ends
        if before or behind
        for name in names
    )


def beside_in_set(one: Manifest, other: Manifest, together: ManifestSet) -> bool:
    """Tell whether two objects are of one set of files, and not of two examples.

    They stand in one folder, or in two of one place where the set makes the other's namespace.
    """
    parents = {posixpath.dirname(posixpath.dirname(each.file)) for each in (one, other)}
    siblings = len(parents) == 1 and together.makes_namespace(other.namespace)
    return siblings or in_one_folder(one, other)


def references(manifest: Manifest) -> Iterator[Reference]:
    """Return every name by which an object needs another one."""
    for pod in manifest.pods:
        for reference in (*_group_of(pod), *_of_pod(pod)):
            if not is_placeholder(reference.name):
                yield reference
    yield from _others(manifest)


def _others(manifest: Manifest) -> Iterator[Reference]:
    spec = manifest.spec
    queue = text(manifest.labels.get("kueue.x-k8s.io/queue-name"))
    if queue is not None:
        yield Reference(("metadata", "labels"), "LocalQueue", queue)
    weight = text(manifest.labels.get("kueue.x-k8s.io/priority-class"))
    if weight is not None and not is_placeholder(weight):
        yield Reference(("metadata", "labels"), "WorkloadPriorityClass", weight)
    gang = mapping((mapping(spec.get("runPolicy")) or {}).get("schedulingPolicy")) or {}
    name = text(gang.get("priorityClass"))
    if manifest.group == "kubeflow.org" and name and name not in _OF_THE_SYSTEM:
        path = ("spec", "runPolicy", "schedulingPolicy", "priorityClass")
        yield Reference(path, "PriorityClass", name)
    if manifest.kind == "LocalQueue" and (name := text(spec.get("clusterQueue"))) is not None:
        yield Reference(("spec", "clusterQueue"), "ClusterQueue", name)
    if manifest.kind == "PersistentVolumeClaim" and (name := text(spec.get("volumeName"))):
        yield Reference(("spec", "volumeName"), "PersistentVolume", name)
    if manifest.kind in {"RoleBinding", "ClusterRoleBinding"}:
        role = mapping(manifest.body.get("roleRef")) or {}
        kind, name = text(role.get("kind")), text(role.get("name"))
        if kind in {"Role", "ClusterRole"} and name is not None:
            yield Reference(("roleRef", "name"), kind, name)
        yield from _subjects(manifest)
    if manifest.kind == "ValidatingAdmissionPolicyBinding" and (
        name := text(spec.get("policyName"))
    ):
        yield Reference(("spec", "policyName"), "ValidatingAdmissionPolicy", name)
    if manifest.kind == "StatefulSet" and (name := text(spec.get("serviceName"))):
        yield Reference(("spec", "serviceName"), "Service", name)


def _subjects(manifest: Manifest) -> Iterator[Reference]:
    """Return the service accounts of a binding that are in its own namespace."""
    for index, value in enumerate(items(manifest.body.get("subjects")) or []):
        subject = mapping(value) or {}
        name, space = text(subject.get("name")), text(subject.get("namespace"))
        own = manifest.namespace is not None and space in {None, manifest.namespace}
        if subject.get("kind") == "ServiceAccount" and name is not None and own:
            yield Reference(("subjects", index, "name"), "ServiceAccount", name)


def _group_of(pod: Pod) -> Iterator[Reference]:
    name = text(pod.annotations.get(GROUP_NAME))
    if name is not None:
        path: Path = (*pod.path[1:-1], "metadata", "annotations", GROUP_NAME)
        yield Reference(path, "PodGroup", name)


def _of_pod(pod: Pod) -> Iterator[Reference]:
    path = pod.path[1:]
    # Pods find each other by HOSTNAME.SUBDOMAIN through a headless Service of that name.
    for key, kind, given in (
        ("serviceAccountName", "ServiceAccount", ("default",)),
        ("subdomain", "Service", ()),
        ("priorityClassName", "PriorityClass", _OF_THE_SYSTEM),
    ):
        name = text(pod.spec.get(key))
        if name and name not in given:
            yield Reference((*path, key), kind, name)
    for index, value in enumerate(items(pod.spec.get("imagePullSecrets")) or []):
        yield from _one((*path, "imagePullSecrets", index, "name"), "Secret", value, "name")
    for index, value in enumerate(items(pod.spec.get("volumes")) or []):
        yield from _of_volume((*path, "volumes", index), value)
    yield from _of_claims(pod)
    for container in pod.containers:
        inner = container.path[1:]
        for index, value in enumerate(items(container.body.get("env")) or []):
            source = mapping((mapping(value) or {}).get("valueFrom")) or {}
            for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                place = (*inner, "env", index, "valueFrom", key)
                yield from _one(place, kind, source.get(key), "name")
        for index, value in enumerate(items(container.body.get("envFrom")) or []):
            body = mapping(value) or {}
            for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                yield from _one((*inner, "envFrom", index, key), kind, body.get(key), "name")


def _of_claims(pod: Pod) -> Iterator[Reference]:
    for index, value in enumerate(items(pod.spec.get("resourceClaims")) or []):
        for kind in ("ResourceClaim", "ResourceClaimTemplate"):
            place = (*pod.path[1:], "resourceClaims", index)
            yield from _one(place, kind, value, f"{kind[0].lower()}{kind[1:]}Name")


def _of_volume(path: Path, value: Json) -> Iterator[Reference]:
    volume = mapping(value) or {}
    for key, kind, name in (
        ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
    ):
        yield from _one((*path, key), kind, volume.get(key), name)
    projected = mapping(volume.get("projected")) or {}
    for index, source in enumerate(items(projected.get("sources")) or []):
        for key, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
            place = (*path, "projected", "sources", index, key)
            yield from _one(place, kind, (mapping(source) or {}).get(key), "name")


def _one(path: Path, kind: str, value: Json, key: str) -> Iterator[Reference]:
    body = mapping(value) or {}
    name = text(body.get(key))
    if name is None or body.get("optional") is True:
        return
    single = text(body.get("key"))
    listed = [text((mapping(each) or {}).get("key")) for each in items(body.get("items")) or []]
    keys = tuple(each for each in [single, *listed] if each is not None)
    yield Reference(path, kind, name, keys)
