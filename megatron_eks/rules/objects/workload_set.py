"""Rules over workloads and what surrounds them: Services, network policies, Pod Security."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_selection import (
    Labels,
    elsewhere,
    labels_of,
    may_select,
    pods_beside,
    selects,
    under_another_key,
)
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import EFA, Container, Manifest, Pod

_ENFORCE = "pod-security.kubernetes.io/enforce"
_OPEN = "kube-system"
_ALIKE = 0.6
_MAKE_PODS = ("monitoring.coreos.com",)
_HOST = ("hostNetwork", "hostPID", "hostIPC")
_CAPABILITIES = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"),
        *("NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)


def services(together: ManifestSet) -> Iterator[Found]:
    """Require of a Service the labels and named ports of the pods beside it.

    Kubernetes, "Service": a selector that no pod has, or a port by a name that none bears, makes
    an address that answers nobody.
    """
    for service in together.of("Service"):
        selector = mapping(service.spec.get("selector")) or {}
        if not selector:
            continue
        pods = pods_beside(service, together)
        chosen = [pod for manifest, pod in pods if may_select(selector, manifest, pod)]
        if chosen:
            yield from _named_ports(service, chosen)
            continue
        if service.namespace == "kube-system":
            # What EKS installs there is in no file; a workload of its own name is what it is for.
            pods = [
                (each, pod)
                for each, pod in pods
                if (each.name, each.file) == (service.name, service.file)
            ]
            if not pods:
                continue
        if _of_an_operator(selector, together):
            continue
        every = [labels_of(m, pod) if m.file == service.file else pod.labels for m, pod in pods]
        near = [(key, each[key]) for key in selector for each in every if each.get(key)]
        if near:
            key, value = near[0]
            found = f"no pod beside it has these labels; {key} is {shown(value)} there"
            path, remedy = ("spec", "selector"), f"write {key}: {value}"
            yield service, service.find(Code.SERVICE, path, found, remedy, Level.WARNING)
            continue
        missed = _missed(service, selector, pods, together)
        if missed is not None:
            path = ("spec", "selector")
            yield service, service.find(Code.SERVICE, path, *missed, Level.WARNING)
        else:
            yield from _names_nobody(service, pods)


def _missed(
    by: Manifest, selector: Labels, pods: list[tuple[Manifest, Pod]], together: ManifestSet
) -> tuple[str, str] | None:
    """Return what is wrong with a selector that means pods under other keys, or elsewhere."""
    others = under_another_key(selector, by, pods)
    if others:
        return f"no pod beside it has these labels; there are pods with {others}", f"write {others}"
    away = elsewhere(selector, by, together)
    if away is not None:
        found = f"the pods of {away.title} are in namespace {shown(away.namespace)}, and it takes "
        return f"{found}those of its own alone", f"write namespace: {away.namespace}"
    return None


def _of_an_operator(labels: Labels, together: ManifestSet) -> bool:
    """Tell labels of an object of which an operator makes pods, as Prometheus's: it gives them."""
    return any(
        labels.items() <= given.items()
        for each in together.objects
        if not each.pods and each.group in _MAKE_PODS
        for given in (
            mapping((mapping(each.body.get("metadata")) or {}).get("labels")) or {},
            mapping((mapping(each.spec.get("podMetadata")) or {}).get("labels")) or {},
        )
    )


def _names_nobody(service: Manifest, pods: list[tuple[Manifest, Pod]]) -> Iterator[Found]:
    """Refuse a selector that leaves out the very pods that have their names of this Service.

    Kubernetes, "DNS for Services and Pods", pod's hostname and subdomain: only pods that the
    headless Service selects have records under its name.
    """
    named = [
        (manifest, pod)
        for manifest, pod in pods
        if service.name in (pod.spec.get("subdomain"), manifest.spec.get("serviceName"))
    ]
    if named and service.spec.get("clusterIP") == "None" and service.name is not None:
        manifest, pod = named[0]
        labels = {**pod.labels, **labels_of(manifest, pod)}
        own = next(((key, each) for key, each in labels.items() if text(each)), None)
        found = f"selects none of the pods of {manifest.title}, which have their names of it: no "
        found += "such name resolves"
        remedy = f"write {own[0]}: {own[1]}" if own else "select a label of these pods"
        yield service, service.find(Code.SERVICE, ("spec", "selector"), found, remedy)


def selectors(together: ManifestSet) -> Iterator[Found]:
    """Warn of a network policy or disruption budget that selects no pod beside it, but nearly.

    Kubernetes, "Network Policies" and "Specifying a Disruption Budget": it protects nothing then.
    """
    for each in together.of("NetworkPolicy", "PodDisruptionBudget"):
        key = "podSelector" if each.kind == "NetworkPolicy" else "selector"
        body = mapping(each.spec.get(key)) or {}
        labels = mapping(body.get("matchLabels")) or {}
        pods = pods_beside(each, together)
        if not labels or any(selects(labels, manifest, pod) for manifest, pod in pods):
            continue
        if _of_an_operator(labels, together):
            continue
        near = [
            (name, known[name])
            for name in labels
            for other, pod in pods
            # A platform's policy waits for other jobs than those that are given with it.
            for known in (labels_of(other, pod) if other.file == each.file else pod.labels,)
            if known.get(name) and (other.file == each.file or _alike(pod, labels, name))
        ]
        if near and each.namespace != "kube-system":
            name, value = near[0]
            found = f"no pod beside it has these labels; {name} is {shown(value)} there"
            place, remedy = ("spec", key, "matchLabels"), f"write {name}: {value}"
            yield each, each.find(Code.SELECTS_NOTHING, place, found, remedy, Level.WARNING)
        elif each.namespace != "kube-system":
            missed = _missed(each, labels, pods, together)
            if missed is not None:
                place = ("spec", key, "matchLabels")
                code = Code.SELECTS_NOTHING
                yield each, each.find(code, place, *missed, Level.WARNING)


def _alike(pod: Pod, labels: Labels, name: str) -> bool:
    one, other = (text(each.get(name)) or "" for each in (pod.labels, labels))
    return SequenceMatcher(None, one, other).ratio() >= _ALIKE


def _named_ports(service: Manifest, pods: list[Pod]) -> Iterator[Found]:
    known = {
        text((mapping(port) or {}).get("name"))
        for pod in pods
        for container in pod.containers
        for port in items(container.body.get("ports")) or []
    }
    for index, value in enumerate(items(service.spec.get("ports")) or []):
        name = text((mapping(value) or {}).get("targetPort"))
        if name is not None and not (name.isdigit() or is_placeholder(name) or name in known):
            found = f"no container has a port named {shown(name)}"
            names = ", ".join(sorted(filter(None, known))) or "none"
            path = ("spec", "ports", index, "targetPort")
            yield service, service.find(Code.SERVICE, path, found, f"there: {names}")


def chosen(selector: Mapping[str, Json], manifest: Manifest, pod: Pod) -> bool:
    """Tell whether a selector takes a pod."""
    labels = labels_of(manifest, pod)
    for each in items(selector.get("matchExpressions")) or []:
        body = mapping(each) or {}
        key, values = text(body.get("key")) or "", items(body.get("values")) or []
        fits = {
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
        }
        if not fits.get(text(body.get("operator")) or "", True):
            return False
    return selects(mapping(selector.get("matchLabels")) or {}, manifest, pod)


def pod_security(together: ManifestSet) -> Iterator[Found]:
    """Refuse pods that the Pod Security level of their namespace, at hand, keeps out.

    Kubernetes, "Pod Security Standards" and "Pod Security Admission".
    """
    levels = {
        each.name: text(each.labels.get(_ENFORCE)) for each in together.of("Namespace") if each.name
    }
    for manifest in together.objects:
        level = levels.get(manifest.namespace or "")
        if level not in {"baseline", "restricted"}:
            continue
        space = manifest.namespace
        for pod in manifest.pods:
            needed = list(_violations(pod, restricted=False))
            if manifest.kind == "DaemonSet" and needed:
                # What serves a node needs these, and where they are allowed everything is.
                whole = " and ".join(dict.fromkeys(each.found for each in needed))
                remedy = f"set {_ENFORCE}: privileged on namespace {space}, or put the DaemonSet "
                written = f"{whole}, which {level} in its namespace refuses"
                yield (
                    manifest,
                    manifest.find(
                        Code.POD_ABOVE_NAMESPACE, needed[0].path, written, f"{remedy}into {_OPEN}"
                    ),
                )
                continue
            for each in _violations(pod, restricted=level == "restricted"):
                remedy = each.remedy
                if each.is_of_node:
                    remedy += f", or set {_ENFORCE}: privileged on namespace {space}"
                written = f"{each.found}, which {level} in its namespace refuses"
                yield (
                    manifest,
                    manifest.find(Code.POD_ABOVE_NAMESPACE, each.path, written, remedy),
                )


def open_namespaces(together: ManifestSet) -> Iterator[Found]:
    """Warn of a namespace without a level, in which a job mounts files of the node.

    Kubernetes, "Pod Security Admission": whoever may make a pod there may read and change the
    node, and with it every other job on it.
    """
    for namespace in together.of("Namespace"):
        if not is_absent(namespace.labels.get(_ENFORCE)):
            continue
        for manifest in together.objects:
            inside = manifest.namespace == namespace.name and manifest.is_job
            for pod in manifest.pods if inside else ():
                first = next(_violations(pod, restricted=False), None)
                if first is not None:
                    written = f"no level, so any pod may do what {manifest.title} does: "
                    written += first.found
                    path = ("metadata", "labels", _ENFORCE)
                    remedy = "set it to baseline, or to privileged if it is meant"
                    yield (
                        namespace,
                        namespace.find(Code.NAMESPACE_LEVEL, path, written, remedy, Level.WARNING),
                    )
                    break


_OF_BOTH = frozenset({"runAsNonRoot", "seccompProfile"})
_OTHER_USER = "use another number, such as 1000"


@dataclass(frozen=True)
class _Violation:
    """What a level of Pod Security refuses."""

    path: Path
    found: str
    remedy: str
    is_of_node: bool = False
    """Whether it may be what a pod that serves its node cannot do without."""


def _violations(pod: Pod, *, restricted: bool) -> "Iterator[_Violation]":
    path = pod.path[1:]
    for key in _HOST:
        if pod.spec.get(key) is True:
            yield _Violation((*path, key), key, "remove it", is_of_node=True)
    for index, value in enumerate(items(pod.spec.get("volumes")) or []):
        if "hostPath" in (mapping(value) or {}):
            remedy = "use a claim or an emptyDir"
            place = (*path, "volumes", index)
            yield _Violation(place, "a hostPath volume", remedy, is_of_node=True)
    outer = mapping(pod.spec.get("securityContext")) or {}
    if restricted and outer.get("runAsUser") == 0:
        yield _Violation((*path, "securityContext", "runAsUser"), "user 0", _OTHER_USER)
    for container in pod.containers:
        context = mapping(container.body.get("securityContext"))
        if context is not None:
            inner = (*container.path[1:], "securityContext")
            for each in _of_container(outer, container, restricted=restricted):
                first = str(each.path[0])
                inherited = first in _OF_BOTH and first in outer and first not in context
                holder = (*path, "securityContext") if inherited else inner
                yield replace(each, path=(*holder, *each.path))


def _of_container(
    outer: Mapping[str, Json], container: Container, *, restricted: bool
) -> "Iterator[_Violation]":
    """Return what is refused of a container, with paths from its security context."""
    context = mapping(container.body.get("securityContext")) or {}
    capabilities = mapping(context.get("capabilities")) or {}
    allowed = {"NET_BIND_SERVICE"} if restricted else _CAPABILITIES
    added = {text(each) or "" for each in items(capabilities.get("add")) or []}
    if context.get("privileged") is True:
        yield _Violation(("privileged",), "a privileged container", "remove it", is_of_node=True)
    if wrong := added - allowed:
        named = ", ".join(sorted(wrong))
        # bottlerocket-core-kit, pull request 141, and amazon-eks-ami, pull request 595: containers
        # may lock memory as they are; capabilities(7): only root would get this one.
        unneeded = wrong == {"IPC_LOCK"} and container.names(EFA)
        remedy = f"remove {named}" + (", which EFA does not need on EKS" if unneeded else "")
        of_node = bool(wrong - _CAPABILITIES) and not unneeded
        path = ("capabilities", "add")
        yield _Violation(path, f"capability {named}", remedy, is_of_node=of_node)
    if restricted:
        yield from _restricted(outer, context, capabilities)


def _restricted(
    outer: Mapping[str, Json], context: Mapping[str, Json], capabilities: Mapping[str, Json]
) -> "Iterator[_Violation]":
    if context.get("allowPrivilegeEscalation") is not False:
        found = "privilege escalation that is not switched off"
        key = "allowPrivilegeEscalation"
        yield _Violation((key,), found, f"write {key}: false")
    if "ALL" not in (items(capabilities.get("drop")) or []):
        path = ("capabilities", "drop")
        yield _Violation(path, "capabilities that are not all dropped", "write drop: [ALL]")
    if context.get("runAsNonRoot", outer.get("runAsNonRoot")) is not True:
        yield _Violation(("runAsNonRoot",), "no runAsNonRoot: true", "write runAsNonRoot: true")
    if context.get("runAsUser") == 0:
        yield _Violation(("runAsUser",), "user 0", _OTHER_USER)
    profile = mapping(context.get("seccompProfile") or outer.get("seccompProfile")) or {}
    if profile.get("type") not in ("RuntimeDefault", "Localhost"):
        remedy = "write seccompProfile: {type: RuntimeDefault}"
        yield _Violation(("seccompProfile",), "no seccompProfile", remedy)
