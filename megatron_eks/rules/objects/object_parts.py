"""Rules over parts of objects that must go together, and that no schema compares."""

import posixpath
import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.quantity import quantity
from megatron_eks.rules.objects.manifest_set import (
    Found,
    ManifestSet,
    built_by_kustomize,
    in_one_folder,
)
from megatron_eks.rules.objects.mounted_scripts import started
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

# Kubernetes 1.35, pkg/apis/core/validation/validation.go, ValidateSecret.
_KEYS = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
# Karpenter, "Disruption"; cluster autoscaler, FAQ: any other word has no effect.
_WORDS = {
    "karpenter.sh/do-not-disrupt": ("true",),
    "cluster-autoscaler.kubernetes.io/safe-to-evict": ("false", "true"),
    "cluster-autoscaler.kubernetes.io/scale-down-disabled": ("true", "false"),
}
# Karpenter, "v1beta1 Migration": pods and nodes of before bear names that no release reads now.
_RENAMED = {
    "karpenter.sh/do-not-evict": "karpenter.sh/do-not-disrupt",
    "karpenter.sh/do-not-consolidate": "karpenter.sh/do-not-disrupt",
}
# Karpenter, "Well-Known Annotations": how long after a pod's start it is protected.
_DURATION = re.compile(r"([0-9]+(h|m|s))+")
_RUNS, _READABLE = 0o111, 0o644
_ALWAYS = frozenset({"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"})
_MANY = ("ReadWriteMany", "ReadOnlyMany")


def secrets(manifest: Manifest) -> Iterator[Finding]:
    """Require of a Secret the keys that its type stands for.

    Kubernetes, "Secrets", types: the API server refuses another one.
    """
    wanted = _KEYS.get(text(manifest.body.get("type")) or "", ())
    if manifest.kind != "Secret" or not wanted:
        return
    data = [mapping(manifest.body.get(key)) for key in ("data", "stringData")]
    if None in data:
        return
    given = {key for each in data for key in each or {}}
    missing = [key for key in wanted if key not in given]
    if missing:
        found = f"no key {missing[0]}, which type {manifest.body['type']} needs"
        remedy = f"write it under {missing[0]}"
        path = ("data", missing[0])
        yield manifest.find(Code.MISSING_FIELD, path, f"{found}: the API server refuses it", remedy)


def subject_namespaces(together: ManifestSet) -> Iterator[Found]:
    """Warn of a service account without a namespace in a binding for the whole cluster.

    Kubernetes 1.35, pkg/apis/rbac/validation/validation.go, ValidateRoleBindingSubject. Kustomize
    writes it where it writes one for everything; an overlay that does so may be anywhere.
    """
    written = any(text(each.body.get("namespace")) for each in together.of("Kustomization"))
    for manifest in together.of("ClusterRoleBinding"):
        if written and built_by_kustomize(manifest, together):
            continue
        for index, value in enumerate(items(manifest.body.get("subjects")) or []):
            subject = mapping(value) or {}
            if subject.get("kind") == "ServiceAccount" and is_absent(subject.get("namespace")):
                found = "a service account without a namespace: the API server refuses the binding"
                remedy = "add its namespace, if Kustomize does not"
                place = ("subjects", index, "namespace")
                finding = manifest.find(Code.MISSING_FIELD, place, found, remedy, Level.WARNING)
                yield manifest, finding


def subjects(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an API group of a binding's service accounts.

    Kubernetes 1.35, pkg/apis/rbac/validation/validation.go, ValidateRoleBindingSubject.
    """
    if manifest.kind not in {"ClusterRoleBinding", "RoleBinding"}:
        return
    for index, value in enumerate(items(manifest.body.get("subjects")) or []):
        subject, path = mapping(value) or {}, ("subjects", index)
        if subject.get("kind") != "ServiceAccount":
            continue
        if text(subject.get("apiGroup")):
            found = f"{shown(subject['apiGroup'])}: service accounts are in the core group"
            remedy = 'remove it, or write ""'
            yield manifest.find(Code.WRONG_VALUE, (*path, "apiGroup"), found, remedy)


def role_kinds(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a binding for the whole cluster of a role that is of one namespace.

    Kubernetes 1.35, pkg/apis/rbac/validation/validation.go, ValidateClusterRoleBinding.
    """
    role = mapping(manifest.body.get("roleRef")) or {}
    if manifest.kind == "ClusterRoleBinding" and role.get("kind") == "Role":
        found = "a ClusterRoleBinding gives no Role: the API server refuses it"
        remedy = "write ClusterRole, or bind the Role by a RoleBinding in its namespace"
        yield manifest.find(Code.RIGHTS, ("roleRef", "kind"), found, remedy)


def scaled(manifest: Manifest) -> Iterator[Finding]:
    """Require an autoscaler's bounds in order.

    Kubernetes 1.35, pkg/apis/autoscaling/validation: must be at least minReplicas.
    """
    least, most = (number(manifest.spec.get(key)) for key in ("minReplicas", "maxReplicas"))
    scaler = manifest.kind == "HorizontalPodAutoscaler"
    if scaler and least is not None and most is not None and least > most:
        found = f"minReplicas {least} above maxReplicas {most}: the API server refuses it"
        yield manifest.find(
            Code.MANIFEST_VALUE, ("spec", "minReplicas"), found, f"use at most {most}"
        )


def restarts(manifest: Manifest) -> Iterator[Finding]:
    """Require restartPolicy Always of pods that are kept running.

    Kubernetes 1.35, pkg/apis/apps/validation: the API server takes no other.
    """
    for pod in manifest.pods if manifest.kind in _ALWAYS and manifest.group == "apps" else ():
        policy = text(pod.spec.get("restartPolicy"))
        if policy in {"Never", "OnFailure"}:
            found = f"{policy} in a {manifest.kind}: the API server refuses the object"
            path = (*pod.path, "restartPolicy")
            yield Finding(Code.MANIFEST_VALUE, path, found, "remove it, or use a Job")


def bounds(manifest: Manifest) -> Iterator[Finding]:
    """Require of a LimitRange bounds in order, and defaults for containers alone.

    Kubernetes 1.35, pkg/apis/core/validation, ValidateLimitRange: min, defaultRequest, default and
    max, each no more than the next; defaults "may not be specified when `type` is Pod".
    """
    order = ("min", "defaultRequest", "default", "max")
    for index, value in enumerate(items(manifest.spec.get("limits")) or []):
        limit = (mapping(value) or {}) if manifest.kind == "LimitRange" else {}
        for key in ("default", "defaultRequest") if limit.get("type") == "Pod" else ():
            if mapping(limit.get(key)):
                found = f"{key} in a limit of type Pod: the API server refuses the LimitRange"
                remedy = "put it into a limit with type: Container"
                path: Path = ("spec", "limits", index, key)
                yield manifest.find(Code.MANIFEST_VALUE, path, found, remedy)
        for place, low in enumerate(order):
            for high in order[place + 1 :]:
                first, second = (mapping(limit.get(each)) or {} for each in (low, high))
                for name in (each for each in first if each in second):
                    least, most = quantity(first[name]), quantity(second[name])
                    if least is not None and most is not None and least > most:
                        found = f"{low} {shown(first[name])} above {high} {shown(second[name])}"
                        path = ("spec", "limits", index, low, name)
                        remedy = f"use at most {shown(second[name])}"
                        yield manifest.find(Code.MANIFEST_VALUE, path, f"{found}: refused", remedy)


def words(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an annotation that is to keep a pod where it is, and that nobody reads.

    Karpenter, "Disruption", pod-level controls, and "v1beta1 Migration", annotations;
    kubernetes/autoscaler, cluster autoscaler, FAQ.
    """
    bodies: list[tuple[Path, dict[str, Json]]] = [((), dict(manifest.body))]
    for pod in manifest.pods:
        value = dict(manifest.body)
        for key in pod.path[1:-1]:
            value = mapping(value.get(str(key))) or {}
        bodies.append((pod.path[1:-1], value))
    told: set[tuple[Path, str]] = set()
    for path, body in bodies:
        notes = mapping((mapping(body.get("metadata")) or {}).get("annotations")) or {}
        for key, given in notes.items():
            word, now = text(given), _RENAMED.get(key)
            if now and now not in notes and (path, key) not in told:
                told.add((path, key))
                found = "Karpenter reads it no more: the pod may be moved in the midst of its run"
                place = (*path, "metadata", "annotations", key)
                remedy = f'write {now}: "true"'
                yield manifest.find(Code.WRONG_VALUE, place, found, remedy, Level.WARNING)
            lasts = key == "karpenter.sh/do-not-disrupt" and _DURATION.fullmatch(word or "")
            wrong = word is not None and word not in _WORDS.get(key, (word,)) and not lasts
            if wrong and not is_placeholder(word or "") and (path, key) not in told:
                told.add((path, key))
                found = f"{shown(word)} has no effect: the pod may be moved in the midst of its run"
                place = (*path, "metadata", "annotations", key)
                remedy = f'write "{_WORDS[key][0]}"'
                yield manifest.find(Code.WRONG_VALUE, place, found, remedy, Level.WARNING)


def scripts(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a program that is a file of a ConfigMap or Secret which nobody may run.

    Kubernetes API reference, ConfigMapVolumeSource.defaultMode: 0644 without one, so the container
    ends with "permission denied".
    """
    for pod in manifest.pods:
        modes = {text((mapping(each) or {}).get("name")): _mode(each) for each in _volumes(pod)}
        for container in pod.containers:
            first = container.words[0] if container.words else None
            start = started(container) if first and first[0][-2] == "command" else None
            if first is None or start is None or not start[2]:
                continue
            program, alone = start[1], start[1] == first[1]
            mode = modes.get(_volume_at(container, program))
            if mode is not None and not mode & _RUNS:
                found = f"{shown(program)} has mode {mode:04o}: permission denied"
                by_shell = f"[bash, {program}]" if alone else f"bash {program}"
                remedy = f"set defaultMode: 0755, or start it by a shell: {by_shell}"
                path = first[0] if alone else first[0][:-1]
                yield Finding(Code.REFUSED_IN_POD, path, found, remedy)


def _volumes(pod: Pod) -> "list[Json]":
    return items(pod.spec.get("volumes")) or []


def _mode(value: Json) -> int | None:
    """Return the mode of a volume's files; None for other volumes, and where files differ."""
    volume = mapping(value) or {}
    for kind in ("configMap", "secret"):
        source = mapping(volume.get(kind))
        if kind in volume and source is not None:
            own = any(
                (mapping(each) or {}).get("mode") for each in items(source.get("items")) or []
            )
            given = source.get("defaultMode")
            return None if own else _READABLE if is_absent(given) else number(given)
    return None


def _volume_at(container: Container, program: str) -> str | None:
    for value in items(container.body.get("volumeMounts")) or []:
        mount = mapping(value) or {}
        place = (text(mount.get("mountPath")) or "").rstrip("/")
        if place and place in {program, posixpath.dirname(program)}:
            return text(mount.get("name"))
    return None


def one_claim(together: ManifestSet) -> Iterator[Found]:
    """Refuse a second claim that names the volume of another.

    Kubernetes, "Persistent Volumes", binding: one claim for one volume; the other stays Pending.
    """
    taken: dict[str, Manifest] = {}
    for claim in together.of("PersistentVolumeClaim"):
        name = text(claim.spec.get("volumeName"))
        if not name or is_placeholder(name):
            continue
        other = taken.setdefault(name, claim)
        same = (other.name, other.namespace) == (claim.name, claim.namespace)
        if not same and in_one_folder(claim, other):
            owner = f"{other.namespace}/{other.name}"
            found = f"volume {shown(name)}, which {owner} has: it stays Pending"
            path, remedy = (
                ("spec", "volumeName"),
                "make a volume of its own for the same file system",
            )
            yield claim, claim.find(Code.CLAIM_AND_VOLUME, path, found, remedy)


def block_claims(together: ManifestSet) -> Iterator[Found]:
    """Refuse a claim for several nodes at a class of EBS volumes.

    kubernetes-sigs/aws-ebs-csi-driver, docs/multi-attach.md: a file system on EBS is for one node;
    only raw blocks of io2 may be on several.
    """
    for claim in together.of("PersistentVolumeClaim"):
        name = text(claim.spec.get("storageClassName"))
        kind = together.named(claim, "StorageClass", name) if name else None
        driver = text(kind.body.get("provisioner")) if kind is not None else None
        if driver is None and name in {"gp2", "gp3", "io1", "io2"}:
            driver = "ebs.csi.aws.com"
        modes = [each for each in items(claim.spec.get("accessModes")) or [] if each in _MANY]
        block = claim.spec.get("volumeMode") == "Block"
        if driver == "ebs.csi.aws.com" and modes and not block:
            found = f"{modes[0]} of a class of EBS volumes: the claim stays Pending"
            path, remedy = ("spec", "accessModes"), "use FSx for Lustre or EFS, or ReadWriteOnce"
            yield claim, claim.find(Code.CLAIM_AND_VOLUME, path, found, remedy)
