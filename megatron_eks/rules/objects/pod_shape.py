"""Rules over the shape of pods and jobs: names given twice, selectors, versions of the API."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import GPU, Manifest

# Kubernetes, "Deprecated API Migration Guide": groups and versions that 1.31 no longer serves.
_REMOVED: dict[tuple[str, str | None], str] = {
    ("apps/v1beta1", None): "apps/v1",
    ("apps/v1beta2", None): "apps/v1",
    ("extensions/v1beta1", "Deployment"): "apps/v1",
    ("extensions/v1beta1", "DaemonSet"): "apps/v1",
    ("extensions/v1beta1", "ReplicaSet"): "apps/v1",
    ("extensions/v1beta1", "NetworkPolicy"): "networking.k8s.io/v1",
    ("extensions/v1beta1", "Ingress"): "networking.k8s.io/v1",
    ("networking.k8s.io/v1beta1", None): "networking.k8s.io/v1",
    ("batch/v1beta1", None): "batch/v1",
    ("policy/v1beta1", "PodDisruptionBudget"): "policy/v1",
    ("policy/v1beta1", "PodSecurityPolicy"): "labels of Pod Security on the namespace",
    ("rbac.authorization.k8s.io/v1beta1", None): "rbac.authorization.k8s.io/v1",
    ("storage.k8s.io/v1beta1", "StorageClass"): "storage.k8s.io/v1",
    ("storage.k8s.io/v1beta1", "CSIDriver"): "storage.k8s.io/v1",
    ("scheduling.k8s.io/v1beta1", None): "scheduling.k8s.io/v1",
    ("apiextensions.k8s.io/v1beta1", None): "apiextensions.k8s.io/v1",
    ("kubeflow.org/v1beta1", "PyTorchJob"): "kubeflow.org/v1",
    ("kubeflow.org/v1beta2", "PyTorchJob"): "kubeflow.org/v1",
    ("kubeflow.org/v1alpha1", "PyTorchJob"): "kubeflow.org/v1",
    ("kubeflow.org/v2beta1", "PyTorchJob"): "kubeflow.org/v1",
    ("kubeflow.org/v1", "TrainJob"): "trainer.kubeflow.org/v1alpha1",
    **{
        ("kubeflow.org/v2alpha1", kind): "trainer.kubeflow.org/v1alpha1"
        for kind in ("ClusterTrainingRuntime", "TrainJob", "TrainingRuntime")
    },
    ("jobset.x-k8s.io/v1alpha1", "JobSet"): "jobset.x-k8s.io/v1alpha2",
    ("scheduling.sigs.k8s.io/v1alpha1", "PodGroup"): "scheduling.x-k8s.io/v1alpha1",
}
# The group that serves each kind which a training cluster is made of.
_GROUPS = {
    **dict.fromkeys(
        (
            *("ConfigMap", "LimitRange", "Namespace", "PersistentVolume", "PersistentVolumeClaim"),
            *("Pod", "ResourceQuota", "Secret", "ServiceAccount"),
        ),
        "",
    ),
    **dict.fromkeys(("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"), "apps"),
    **dict.fromkeys(("CronJob", "Job"), "batch"),
    **dict.fromkeys(
        ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"), "rbac.authorization.k8s.io"
    ),
    "PyTorchJob": "kubeflow.org",
    "StorageClass": "storage.k8s.io",
    "PriorityClass": "scheduling.k8s.io",
}
_VERSIONS = {"batch": "v1", "apps": "v1", "": "v1", "kubeflow.org": "v1"}

NO_DEVICES = frozenset({"gpu.nvidia.com", "nvidia.com/gpus", "nvidia/gpu", "nvidia/gpus"})
"""Keys by which people mean the taint nvidia.com/gpu."""


def served_instead(manifest: Manifest) -> str | None:
    """Return the version in place of one that serves the kind no longer."""
    version = text(manifest.body.get("apiVersion")) or ""
    return _REMOVED.get((version, manifest.kind)) or _REMOVED.get((version, None))


def api_versions(manifest: Manifest) -> Iterator[Finding]:
    """Require an API version that serves the kind.

    Kubernetes, "Deprecated API Migration Guide", and API reference 1.35; the training operator
    v1.9.4 serves kubeflow.org/v1.
    """
    version = text(manifest.body.get("apiVersion"))
    if version is None or is_placeholder(version):
        return
    better = served_instead(manifest)
    if better is not None:
        found = f"{version} no longer serves {manifest.kind}"
        yield manifest.find(Code.API_VERSION, ("apiVersion",), found, f"use {better}")
        return
    group = _GROUPS.get(manifest.kind)
    known_as_own = manifest.group in {"", *_GROUPS.values()}
    if group is not None and manifest.group != group and known_as_own:
        served = f"{group}/v1".removeprefix("/")
        found = f"{version} has no kind {manifest.kind}"
        yield manifest.find(Code.API_VERSION, ("apiVersion",), found, f"use {served}")
    elif group is None and known_as_own and manifest.group in _VERSIONS:
        served_kinds = [name for name, of in _GROUPS.items() if of == manifest.group]
        close = next((name for name in served_kinds if name.lower() == manifest.kind.lower()), None)
        if close is not None:
            found = f"{version} has no kind {shown(manifest.kind)}"
            yield manifest.find(Code.API_VERSION, ("kind",), found, f"did you mean {close}?")


def duplicates(manifest: Manifest) -> Iterator[Finding]:
    """Refuse names and places that a pod gives twice.

    Kubernetes 1.35, pkg/apis/core/validation/validation.go: names of containers and volumes, and
    the mount paths of a container, must be unique.
    """
    for pod in manifest.pods:
        lists = (
            *(("containers", "name"), ("volumes", "name")),
            ("initContainers", "name"),
        )
        for key, part in lists:
            yield from _twice((*pod.path, key), pod.spec.get(key), part)
        for container in pod.containers:
            for key, part in (("volumeMounts", "mountPath"), ("ports", "name")):
                yield from _twice((*container.path, key), container.body.get(key), part)


def _twice(path: Path, value: Json, part: str) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, entry in enumerate(items(value) or []):
        name = text((mapping(entry) or {}).get(part))
        if name is None or is_placeholder(name):
            continue
        if name in first:
            found = f"{part} {shown(name)} is already {path[-1]}[{first[name]}]"
            remedy = "keep one of the two, or give it another"
            yield Finding(Code.DUPLICATE_IN_POD, (*path, index, part), found, remedy)
        first.setdefault(name, index)


def selectors(manifest: Manifest) -> Iterator[Finding]:
    """Require a selector that selects the pods of its own template.

    Kubernetes API reference, DeploymentSpec.selector: the API server refuses anything else.
    """
    selector = mapping(manifest.spec.get("selector")) or {}
    labels = mapping(selector.get("matchLabels")) or {}
    if manifest.group != "apps" or not manifest.pods:
        return
    # A patch of somebody else's object has no image.
    containers = manifest.pods[0].containers
    whole = containers and all(not is_absent(each.body.get("image")) for each in containers)
    if is_absent(manifest.spec.get("selector")) and whole:
        yield manifest.find(Code.SELECTOR, ("spec", "selector"), "no selector", "add matchLabels")
    elif whole and not labels and is_absent(selector.get("matchExpressions")):
        found = "an empty selector: the API server refuses the object"
        yield manifest.find(Code.SELECTOR, ("spec", "selector"), found, "add matchLabels")
    for key, value in labels.items() if whole else ():
        given = manifest.pods[0].labels.get(key)
        if given != value and not _waits(value) and not _waits(given):
            found = f"selects {key}: {shown(value)}, and its own pods have {_said(given)}"
            path = ("spec", "selector", "matchLabels", key)
            yield manifest.find(Code.SELECTOR, path, found, "write the same in both places")


def _waits(value: Json) -> bool:
    return isinstance(value, str) and is_placeholder(value)


def _said(value: Json) -> str:
    return "no such label" if is_absent(value) else shown(value)


def tolerations(manifest: Manifest) -> Iterator[Finding]:
    """Require tolerations that Kubernetes accepts.

    Kubernetes, "Taints and Tolerations": Exists takes no value; three effects.
    """
    for pod in manifest.pods:
        for index, entry in enumerate(items(pod.spec.get("tolerations")) or []):
            yield from _toleration((*pod.path, "tolerations", index), mapping(entry) or {})


def _toleration(path: Path, body: "Mapping[str, Json]") -> Iterator[Finding]:
    operator, effect = text(body.get("operator")), text(body.get("effect"))

    def wrong(key: str, found: str, remedy: str) -> Finding:
        return Finding(Code.TOLERATION, (*path, key), found, remedy)

    written = text(body.get("key")) or ""
    if written.lower() in NO_DEVICES:
        found = f"{shown(written)} is no device, and nodes are tainted by a device's name"
        yield Finding(Code.TOLERATION, (*path, "key"), found, f"write {GPU}", Level.WARNING)

    if operator is not None and operator not in {"Exists", "Equal", "Lt", "Gt", ""}:
        yield wrong("operator", f"unknown operator {shown(operator)}", "use Exists or Equal")
    if operator == "Exists" and text(body.get("value")):
        yield wrong("value", "a value beside Exists", "remove it, or use Equal")
    if operator in {None, "", "Equal"} and is_absent(body.get("key")):
        yield wrong("key", "no key, which only Exists takes", "name the key, or use Exists")
    timed = not is_absent(body.get("tolerationSeconds"))
    if timed and effect in {None, "", "NoSchedule", "PreferNoSchedule"}:
        given = effect or "every effect"
        found = f"tolerationSeconds with {given}: the API server refuses the pod"
        yield wrong("tolerationSeconds", found, "write effect: NoExecute, or remove it")
    if effect and effect not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
        remedy = "use NoSchedule, PreferNoSchedule or NoExecute"
        yield wrong("effect", f"unknown effect {shown(effect)}", remedy)
