"""Which pods a selector takes, by their own labels and by those of their controllers."""

from collections.abc import Mapping

from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import ManifestSet, in_one_folder
from megatron_eks.rules.values import text
from megatron_eks.rules.workloads import Manifest, Pod

Labels = Mapping[str, Json]
"""Labels with their values; None where each pod has another one."""


_INDEX = "batch.kubernetes.io/job-completion-index"


def pods_beside(manifest: Manifest, together: ManifestSet) -> list[tuple[Manifest, Pod]]:
    """Return the pods of an object's namespace, each with the object that makes it."""
    return [
        (each, pod)
        for each in together.objects
        if each.namespace == manifest.namespace
        # Without a namespace only a file shows what is meant to be together.
        if manifest.namespace is not None or each.file == manifest.file
        for pod in each.pods
    ]


def labels_of(manifest: Manifest, pod: Pod) -> Labels:
    """Return a pod's labels, with those that its controller adds."""
    labels = dict(pod.labels)
    if manifest.pytorch_replicas is not None:
        labels["training.kubeflow.org/job-name"] = manifest.name
        labels["training.kubeflow.org/operator-name"] = "pytorchjob-controller"
        labels["training.kubeflow.org/replica-type"] = str(pod.path[3]).lower()
        labels["training.kubeflow.org/replica-index"] = None  # another one for each pod
    labels |= _of_controllers(manifest)
    if (manifest.group, manifest.kind) == ("batch", "Job"):
        labels["job-name"] = labels["batch.kubernetes.io/job-name"] = manifest.name
        if manifest.spec.get("completionMode") == "Indexed":
            labels[_INDEX] = None
    if manifest.kind == "StatefulSet":
        labels["statefulset.kubernetes.io/pod-name"] = None
        labels["apps.kubernetes.io/pod-index"] = None
    return labels


# What other controllers label each of their pods with: JobSet, Volcano, LeaderWorkerSet, KubeRay;
# the first one is the name of the object, and the others differ by pod.
_OF_CONTROLLERS = {
    "jobset.x-k8s.io": (
        *("jobset-name", "jobset-uid", "replicatedjob-name", "replicatedjob-replicas"),
        *("global-replicas", "job-index", "job-global-index", "job-key", "restart-attempt"),
        *("group-name", "group-replicas", "job-group-index", "job-restart-attempt", "coordinator"),
    ),
    "batch.volcano.sh": (
        *("job-name", "task-spec", "job-namespace", "queue-name", "task-index", "job-version"),
    ),
    "leaderworkerset.x-k8s.io": (
        *("name", "worker-index", "group-index", "group-key", "template-revision-hash"),
    ),
    "ray.io": ("", "cluster", "node-type", "group", "identifier", "is-ray-node", "serve"),
}
_PREFIXES = {
    "jobset.x-k8s.io": "jobset.sigs.k8s.io",
    "batch.volcano.sh": "volcano.sh",
    "leaderworkerset.x-k8s.io": "leaderworkerset.sigs.k8s.io",
    "ray.io": "ray.io",
}


def _of_controllers(manifest: Manifest) -> "dict[str, Json]":
    names = _OF_CONTROLLERS.get(manifest.group)
    if names is None:
        return {}
    prefix, (first, *others) = _PREFIXES[manifest.group], names
    found: dict[str, Json] = {f"{prefix}/{each}": None for each in others}
    if first:
        found[f"{prefix}/{first}"] = manifest.name
    if manifest.group == "jobset.x-k8s.io":
        found |= dict.fromkeys(("job-name", "batch.kubernetes.io/job-name", _INDEX))
    return found


def under_another_key(selector: Labels, by: Manifest, pods: "list[tuple[Manifest, Pod]]") -> str:
    """Return the labels of pods that have a selector's values, and only its keys are others.

    One of the values is the name of the pods' owner, or of what selects them: `true` or `gpu` as a
    value of both says nothing.
    """
    values = {text(each) for each in selector.values()}
    for manifest, pod in pods:
        same = None not in values and values <= {text(each) for each in pod.labels.values()}
        if same and not values.isdisjoint({manifest.name, by.name}):
            keys = sorted(key for key, value in pod.labels.items() if value in values)
            return ", ".join(f"{key}: {pod.labels[key]}" for key in keys)
    return ""


def elsewhere(selector: Labels, by: Manifest, together: ManifestSet) -> Manifest | None:
    """Return the owner of pods in another namespace that have all labels of a selector."""
    for each in together.objects if by.namespace and selector else ():
        away = each.namespace not in {None, by.namespace} and in_one_folder(each, by)
        if away and any(selects(selector, each, pod) for pod in each.pods):
            return each
    return None


def selects(selector: Labels, manifest: Manifest, pod: Pod) -> bool:
    """Tell whether a pod has all these labels, those that its controller adds included."""
    labels = labels_of(manifest, pod)
    return all(labels.get(key) == value for key, value in selector.items())


def may_select(selector: Labels, manifest: Manifest, pod: Pod) -> bool:
    """Tell whether one of a controller's pods may have all these labels, such as the first."""
    labels = labels_of(manifest, pod)
    return all(key in labels and labels[key] in (value, None) for key, value in selector.items())
