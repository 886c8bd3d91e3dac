"""Guards of names: what an object names is there, and selectors find their pods."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.guards.manifests import Manifests, manifest_guard
from megatron_eks.guards.values import NO, Value, report

_BUILT_IN = {"default", "kube-system", "kube-public", "kube-node-lease"}
_BUILT_IN |= {"system-cluster-critical", "system-node-critical"}
_APP = "app.kubernetes.io/name"
_NAMESPACED = "ConfigMap DaemonSet Deployment Job NetworkPolicy PersistentVolumeClaim PyTorchJob "
_NAMESPACED += "ResourceQuota Role RoleBinding Secret Service ServiceAccount"
_WORDS = {"args", "command", "openAPIV3Schema"}


@manifest_guard
def named_objects(manifests: Manifests) -> Iterator[Finding]:
    """Name what is there: a pod waits for its volumes, and is refused without its account."""
    for pod in manifests.pods:
        space, own = pod.owner.namespace, f"{pod.owner.name}-"
        places = [("ServiceAccount", pod.spec["serviceAccountName"])]
        places += [("PriorityClass", pod.spec["priorityClassName"])]
        for volume in pod.spec["volumes"]:
            places += [("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])]
            if volume["configMap"]["optional"].raw is not True:
                places += [("ConfigMap", volume["configMap"]["name"])]
        for kind, value in places:
            kept, known = manifests.named(kind, value.text, space), manifests.of(kind)
            beside = kind == "ServiceAccount" and any(manifests.of("Namespace"))
            beside = beside or (kind == "ConfigMap" and value.text.startswith(own))
            lost = manifests.lacks(kind, value.text, space) or (kept is None and beside)
            missing = value and lost and value.text not in _BUILT_IN
            names = " or ".join(e.name for e in known if e.namespace in {"", space})
            found = f"no {kind} {value.text!r}: the pods are not made, or wait for it"
            remedy = f"use {names}" if names else f"add the {kind}"
            yield from report(Code.MISSING_OBJECT, (missing, value, found, remedy))
            if kept and kind == "ConfigMap" and not (kept["data"].raw or kept["binaryData"].raw):
                found = f"no data, and {pod.owner.name} reads a file from it"
                yield kept["data"].finding(Code.MISSING_OBJECT, found, "add data, a key a file")
    for each in manifests.of("ServiceAccount"):
        token, why = each["automountServiceAccountToken"], "its pods get a token they do not need"
        yield from token.must_be(Code.NEEDLESS_PRIVILEGE, NO, why=why, level=Level.WARNING)


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
        pairs = {(key, str(value.raw)) for key, value in wanted.items()}
        chosen = [e for e in pods if pairs and pairs <= {(k, str(v)) for k, v in e.labels.items()}]
        lost, found = pods and not chosen, "no pod has these labels: it is refused, or finds nobody"
        yield from report(Code.SELECTOR, (lost, wanted, found, "write labels of pods"))
        app, own = [e.labels.get(_APP) for e in chosen], each["metadata"]["labels"][_APP]
        why, level = "commands that look for it miss it", Level.WARNING
        yield from own.must_be(Code.POD_LABEL, *app, why=why, level=level) if app else ()
        known = [p for pod in chosen for c in pod.containers for p in c["ports"]]
        ports = [port[key].raw for port in known for key in ("name", "containerPort")]
        for port in each["spec"]["ports"]:
            target = port["targetPort"] or port["port"]
            wrong, found = known and target.raw not in ports, f"no port {target.raw!r} of the pods"
            yield from report(Code.SERVICE, (wrong, target, found, f"use one of {ports}"))


def _repeating(value: Value) -> Iterator[Value]:
    """Return lists with an element that stands there twice, but those of words, where it may."""
    if isinstance(value.raw, list) and len({*map(repr, value.raw)}) < len(value.raw):
        yield value
    for key, each in (*enumerate(value), *value.items()):
        if key not in _WORDS and isinstance(each.raw, dict | list):
            yield from _repeating(each)
