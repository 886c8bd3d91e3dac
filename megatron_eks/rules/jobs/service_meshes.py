"""Rule over proxies of a service mesh in pods that train."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import mapping
from megatron_eks.rules.workloads import GPU, Manifest, Pod

_INJECT = "sidecar.istio.io/inject"
_NAMESPACE = "istio-injection"
_LINKERD = "linkerd.io/inject"
_WHAT = "the mesh's proxy stands between the ranks, and keeps the pod running when they have ended"
_REMEDY = f'label the pods {_INJECT}: "false"'


def proxies(together: ManifestSet) -> Iterator[Found]:
    """Warn of a mesh's proxy in the pods of a job.

    Istio, "Installing the Sidecar"; kubeflow/website#2011 and istio/istio#11045: the job never
    completes, and ranks that connect by address and any port are cut off.
    """
    namespaces = {
        each.name
        for each in together.of("Namespace")
        if each.labels.get(_NAMESPACE) == "enabled" or "istio.io/rev" in each.labels
    }
    for manifest in together.objects:
        meshed = manifest.namespace in namespaces and manifest.namespace is not None
        for pod in manifest.pods if manifest.is_job else ():
            said = _said(manifest, pod)
            ranks = pod.names(GPU) or any(each.has_launcher for each in pod.containers)
            if not ranks or said is False or (said is None and not meshed):
                continue
            path: Path = (*pod.path[1:-1], "metadata", "labels", _INJECT)
            finding = manifest.find(Code.SERVICE_MESH, path, _WHAT, _REMEDY, Level.WARNING)
            yield manifest, finding


def _said(manifest: Manifest, pod: Pod) -> bool | None:
    """Tell what a pod's own labels and annotations say about a proxy; None for nothing."""
    notes = _annotations(manifest, pod)
    for values in (pod.labels, notes):
        for key in (_INJECT, _LINKERD):
            value = values.get(key)
            if value in ("true", "enabled", True):
                return True
            if value in ("false", "disabled", False):
                return False
    return None


def _annotations(manifest: Manifest, pod: Pod) -> "dict[str, object]":
    value: object = dict(manifest.body)
    for key in (*pod.path[1:-1], "metadata", "annotations"):
        if isinstance(value, list) and isinstance(key, int):
            value = value[key]
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return dict(mapping(value) or {}) if isinstance(value, dict) else {}
