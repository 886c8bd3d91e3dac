"""Which pods a selector takes, by their own labels and by those of their controllers."""

from collections.abc import Mapping

from megatron_eks.config.load import Json
from megatron_eks.rules.manifest_set import ManifestSet
from megatron_eks.rules.workloads import Manifest, Pod

Labels = Mapping[str, Json]
"""Labels with their values; None where each pod has another one."""


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
    if manifest.kind == "Job":
        labels["job-name"] = labels["batch.kubernetes.io/job-name"] = manifest.name
        if manifest.spec.get("completionMode") == "Indexed":
            labels["batch.kubernetes.io/job-completion-index"] = None
    if manifest.kind == "StatefulSet":
        labels["statefulset.kubernetes.io/pod-name"] = None
        labels["apps.kubernetes.io/pod-index"] = None
    return labels


def selects(selector: Labels, manifest: Manifest, pod: Pod) -> bool:
    """Tell whether a pod has all these labels, those that its controller adds included."""
    labels = labels_of(manifest, pod)
    return all(labels.get(key) == value for key, value in selector.items())


def may_select(selector: Labels, manifest: Manifest, pod: Pod) -> bool:
    """Tell whether one of a controller's pods may have all these labels, such as the first."""
    labels = labels_of(manifest, pod)
    return all(key in labels and labels[key] in (value, None) for key, value in selector.items())
