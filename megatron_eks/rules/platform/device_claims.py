"""Rules over devices that pods claim from drivers (dynamic resource allocation)."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, Manifest, Pod

_KINDS = ("ResourceClaim", "ResourceClaimTemplate")
_NESTED = frozenset({"v1", "v1beta2"})
_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
# EKS User Guide, "Manage EFA devices on Amazon EKS": the class that the driver's chart makes.
_CLASS_OF_EFA = "efa.networking.k8s.aws"


def claims(manifest: Manifest) -> Iterator[Finding]:
    """Require of a container's claim that its pod has it, and of a pod's claim one source.

    Kubernetes 1.35, pkg/apis/core/validation/validation.go: "must be one of the names in
    pod.spec.resourceClaims", and exactly one of the two sources.
    """
    # What a TrainJob says of pods is added to what its runtime says.
    for pod in manifest.pods if manifest.kind != "TrainJob" else ():
        listed = items(pod.spec.get("resourceClaims"))
        if listed is None:
            continue
        bodies = [mapping(each) or {} for each in listed]
        known = [name for each in bodies if (name := text(each.get("name")))]
        for index, body in enumerate(bodies):
            given = [key for key in _SOURCES if not is_absent(body.get(key))]
            if len(given) != 1:
                found = f"{' and '.join(given) or 'no claim and no template'}: the API server "
                found += "refuses the pod"
                path = (*pod.path, "resourceClaims", index)
                remedy = f"write one of {' and '.join(_SOURCES)}"
                yield Finding(Code.DEVICE_CLAIM, path, found, remedy)
        for container in pod.containers:
            resources = mapping(container.body.get("resources")) or {}
            for index, value in enumerate(items(resources.get("claims")) or []):
                name = text((mapping(value) or {}).get("name"))
                if name is not None and name not in known and not is_placeholder(name):
                    found = f"the pod has no claim {shown(name)}: the API server refuses the pod"
                    path = (*container.path, "resources", "claims", index, "name")
                    remedy = f"name one of its resourceClaims; there: {', '.join(known) or 'none'}"
                    yield Finding(Code.DEVICE_CLAIM, path, found, remedy)


def requests(manifest: Manifest) -> Iterator[Finding]:
    """Require of a claim's requests the form of its version.

    Kubernetes, API reference, ResourceClaim: since v1beta2 a request has `exactly` or
    `firstAvailable`, and the class stands in it; before that it stood in the request.
    """
    group, _, version = (text(manifest.body.get("apiVersion")) or "").partition("/")
    if group != "resource.k8s.io" or manifest.kind not in _KINDS:
        return
    if version.startswith("v1alpha"):
        found = f"{version} is served no more: the API server knows no such kind"
        remedy = "write resource.k8s.io/v1"
        yield manifest.find(Code.DEVICE_CLAIM, ("apiVersion",), found, remedy)
        return
    spec, path = _spec(manifest)
    listed = items((mapping(spec.get("devices")) or {}).get("requests")) or []
    for index, value in enumerate(listed if version in _NESTED else ()):
        if not is_absent((mapping(value) or {}).get("deviceClassName")):
            place = (*path, "devices", "requests", index, "deviceClassName")
            found = f"{version} has no deviceClassName here: the API server refuses the claim"
            remedy = "write exactly: and below it deviceClassName, count, selectors and the like"
            yield manifest.find(Code.DEVICE_CLAIM, place, found, remedy)


def _spec(claim: Manifest) -> tuple[Mapping[str, Json], Path]:
    if claim.kind == _KINDS[1]:
        return mapping(claim.spec.get("spec")) or {}, ("spec", "spec")
    return claim.spec, ("spec",)


def twice(together: ManifestSet) -> Iterator[Found]:
    """Warn of a pod that asks the plugin and the driver for EFA at once.

    EKS User Guide, "Manage EFA devices on Amazon EKS": "The two mechanisms cannot coexist on the
    same node".
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            asked = [each for each in pod.containers if each.names(EFA)]
            template = next(_of_efa(manifest, pod, together), None) if asked else None
            if template is not None:
                found = (
                    f"{template.title} claims EFA from its driver, and this asks the plugin for "
                )
                found += "some more: no node has both"
                path = (*asked[0].path[1:], "resources", "limits", EFA)
                remedy = "keep one of the two"
                finding = manifest.find(Code.DEVICE_CLAIM, path, found, remedy, Level.WARNING)
                yield manifest, finding


def _of_efa(manifest: Manifest, pod: Pod, together: ManifestSet) -> Iterator[Manifest]:
    for value in items(pod.spec.get("resourceClaims")) or []:
        body = mapping(value) or {}
        for key, kind in zip(_SOURCES, _KINDS, strict=True):
            name = text(body.get(key))
            target = together.named(manifest, kind, name) if name else None
            if target is not None and _CLASS_OF_EFA in _classes(target):
                yield target


def _classes(target: Manifest) -> list[str]:
    devices = mapping(_spec(target)[0].get("devices")) or {}
    bodies = [mapping(each) or {} for each in items(devices.get("requests")) or []]
    bodies += [mapping(each.get("exactly")) or {} for each in bodies]
    return [text(each.get("deviceClassName")) or "" for each in bodies]
