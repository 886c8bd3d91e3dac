"""Guards of names: what an object names is there, and selectors find their pods."""

from collections.abc import Iterable, Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.manifests import Manifests, manifest_guard
from megatron_eks.guards.values import NO, Value, report

_BUILT_IN = {"default", "kube-system", "kube-public", "kube-node-lease"}
_CLASSES = {"system-cluster-critical", "system-node-critical"}
_APP = "app.kubernetes.io/name"
_NAMESPACED = "ConfigMap DaemonSet Deployment Job NetworkPolicy PersistentVolumeClaim PyTorchJob "
_NAMESPACED += "ResourceQuota Role RoleBinding Secret Service ServiceAccount"
_WORDS = {"args", "command", "openAPIV3Schema"}


@manifest_guard
def named_objects(manifests: Manifests) -> Iterator[Finding]:
    """Name what is there: a pod waits for its volumes, and is refused without its account."""
    for pod in manifests.pods:
        space = pod.owner.namespace
        places = [(pod.spec["serviceAccountName"], "ServiceAccount")]
        places += [(pod.spec["priorityClassName"], "PriorityClass")]
        for volume in pod.spec["volumes"]:
            places += [(volume["persistentVolumeClaim"]["claimName"], "PersistentVolumeClaim")]
            optional = volume["configMap"]["optional"].raw is True
            places += [] if optional else [(volume["configMap"]["name"], "ConfigMap")]
        for value, kind in places:
            kept = manifests.named(kind, value.text, space)
            beside = kind == "ServiceAccount" and any(manifests.of("Namespace"))
            own = kind == "ConfigMap" and value.text.startswith(f"{pod.owner.name}-")
            missing = manifests.lacks(kind, value.text, space) or (kept is None and (beside or own))
            if value and missing and value.text not in _CLASSES | {"default"}:
                known = [e.name for e in manifests.of(kind) if e.namespace in {"", space}]
                found = f"no {kind} {value.text!r}: the pods are not made, or wait for it"
                remedy = f"use {' or '.join(known)}" if known else f"add the {kind}"
                yield value.finding(Code.MISSING_OBJECT, found, remedy)
            if kept and kind == "ConfigMap" and not (kept["data"].raw or kept["binaryData"].raw):
                found = f"no data, and {pod.owner.name} reads a file from it"
                yield kept["data"].finding(Code.MISSING_OBJECT, found, "add data, a key a file")
    for each in manifests.of("ServiceAccount"):
        rows = (("automountServiceAccountToken", (NO,), "its pods get a token they do not need"),)
        yield from each.body.must_hold(Code.NEEDLESS_PRIVILEGE, rows, Level.WARNING)


@manifest_guard
def objects(manifests: Manifests) -> Iterator[Finding]:
    """Put each object once into a namespace that is there, and write nothing in it twice."""
    seen: set[tuple[str, str, str]] = set()
    made = [each.name for each in manifests.of("Namespace")]
    for each in manifests.objects:
        name, place = each["metadata"]["name"], each["metadata"]["namespace"]
        known = {*made, *_BUILT_IN} if len(made) > 1 else {place.text}  # the operator's file has 1
        lost = (place or each.kind in _NAMESPACED.split()) and place.text not in known - {""}
        found = f"no namespace {place.text}: the object is refused, or goes to another"
        yield from report(Code.MISSING_OBJECT, (lost, place, found, f"name one of {made}"))
        again = not name.text or (each.kind, place.text, name.text) in seen
        found = f"no name, or a second {each.kind} {name.text}: one overwrites the other"
        yield from report(Code.DUPLICATE_OBJECT, (again, name, found, "rename or remove one"))
        seen.add((each.kind, place.text, name.text))
        for value in _repeating(each.body):
            found = f"{value.name} has an element twice: it is refused, or was meant to differ"
            yield value.finding(Code.DUPLICATE_IN_POD, found, "keep one, or correct it")


@manifest_guard
def selectors(manifests: Manifests) -> Iterator[Finding]:
    """Let workloads and Services find pods, and ports that they have (Kubernetes, "Service")."""
    for each in manifests.of("DaemonSet", "Deployment", "StatefulSet", "Service"):
        selector, service = each["spec"]["selector"], each.kind == "Service"
        pods = [e for e in manifests.pods if e.owner.namespace == each.namespace]
        pods = pods if service else each.pods
        wanted = selector if service else selector["matchLabels"]
        pairs = [(key, value.raw) for key, value in wanted.items()]
        chosen = [e for e in pods if pairs and all(p in [*e.labels.items()] for p in pairs)]
        found = "no pod has these labels: a workload is refused, a Service answers nobody"
        yield from report(
            Code.SELECTOR, (pods and not chosen, wanted, found, "write labels of pods")
        )
        app, why = [e.labels.get(_APP) for e in chosen], "commands that look for it miss it"
        rows = ((_APP, (*app,), why),) if app else ()
        yield from each["metadata"]["labels"].must_hold(Code.POD_LABEL, rows, Level.WARNING)
        known = [p for pod in chosen for c in pod.containers for p in c["ports"]]
        for port in each["spec"]["ports"]:
            target = port["targetPort"] or port["port"]
            ports = [p[key].raw for p in known for key in ("name", "containerPort")]
            wrong, found = known and target.raw not in ports, f"no port {target.raw!r} of the pods"
            yield from report(Code.SERVICE, (wrong, target, found, f"use one of {ports}"))


def _repeating(value: Value) -> Iterator[Value]:
    """Return lists with an element that stands there twice, but those of words, where it may."""
    inner: Iterable[tuple[str | int, Json]] = ()
    if isinstance(value.raw, dict):
        inner = value.raw.items()
    elif isinstance(value.raw, list):
        inner = enumerate(value.raw)
        yield from [value] if len({*map(repr, value.raw)}) < len(value.raw) else []
    for key, each in inner:
        if key not in _WORDS and isinstance(each, dict | list):
            yield from _repeating(value[key])
