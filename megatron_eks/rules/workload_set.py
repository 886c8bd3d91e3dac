"""Rules over workloads and what surrounds them: Services, network policies, Pod Security."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

Labels = Mapping[str, Json]

_ENFORCE = "pod-security.kubernetes.io/enforce"
_HOST = ("hostNetwork", "hostPID", "hostIPC")
# Kubernetes, "Pod Security Standards", baseline.
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
        # What EKS installs there is in no file.
        if not selector or service.namespace == "kube-system":
            continue
        pods = _pods_beside(service, together)
        chosen = [pod for manifest, pod in pods if _selects(selector, _labels(manifest, pod))]
        if chosen:
            yield from _named_ports(service, chosen)
            continue
        near = [(key, pod.labels[key]) for key in selector for _, pod in pods if key in pod.labels]
        if near:
            key, value = near[0]
            found = f"no pod beside it has these labels; {key} is {shown(value)} there"
            finding = service.find(
                Code.SERVICE, ("spec", "selector"), found, "select a pod's labels", Level.WARNING
            )
            yield service, finding


def selectors(together: ManifestSet) -> Iterator[Found]:
    """Warn of a network policy or disruption budget that selects no pod beside it, but nearly.

    Kubernetes, "Network Policies" and "Specifying a Disruption Budget": it protects nothing then.
    """
    for each in together.of("NetworkPolicy", "PodDisruptionBudget"):
        key = "podSelector" if each.kind == "NetworkPolicy" else "selector"
        body = mapping(each.spec.get(key)) or {}
        labels = mapping(body.get("matchLabels")) or {}
        pods = _pods_beside(each, together)
        if not labels or any(_selects(labels, _labels(manifest, pod)) for manifest, pod in pods):
            continue
        near = [
            (name, pod.labels[name]) for name in labels for _, pod in pods if name in pod.labels
        ]
        if near and each.namespace != "kube-system":
            name, value = near[0]
            found = f"no pod beside it has these labels; {name} is {shown(value)} there"
            path, remedy = ("spec", key, "matchLabels"), "select a pod's labels"
            yield each, each.find(Code.SELECTS_NOTHING, path, found, remedy, Level.WARNING)


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


def ranks_cut_off(together: ManifestSet) -> Iterator[Found]:
    """Warn of network policies that keep the ranks of a job from each other.

    Kubernetes, "Network Policies": what selects a pod denies all that no policy admits. EFA
    passes by the policies; the rendezvous and NCCL's bootstrap do not.
    """
    for job in together.of("PyTorchJob"):
        if job.namespace is None or sum(pod.replicas or 1 for pod in job.pods) < 2:  # noqa: PLR2004 -- two ranks make a network
            continue
        for way, peers in (("Ingress", "from"), ("Egress", "to")):
            applied = _policies(job, way, together, surely=True)
            perhaps = _policies(job, way, together, surely=False)
            if applied and not any(_admits(each, way, peers, job) for each in perhaps):
                names = ", ".join(each.title for each in applied)
                found = f"{names} lets no {way.lower()} pass between its ranks"
                remedy = "admit the pods with the same labels, on every port"
                finding = job.find(Code.RANKS_CUT_OFF, ("spec",), found, remedy, Level.WARNING)
                yield job, finding


def _policies(job: Manifest, way: str, together: ManifestSet, *, surely: bool) -> list[Manifest]:
    """Return the policies that surely, or perhaps, select a job's pods, in one direction."""
    found = []
    for policy in together.of("NetworkPolicy"):
        types = items(policy.spec.get("policyTypes")) or []
        by_default = way == "Ingress" or "egress" in policy.spec
        covers = way in types if types else by_default
        selector = mapping(policy.spec.get("podSelector"))
        if covers and not surely:
            found.append(policy)
        elif covers and policy.namespace == job.namespace and selector is not None:
            plain = is_absent(selector.get("matchExpressions"))
            labels = mapping(selector.get("matchLabels")) or {}
            if plain and all(_selects(labels, _labels(job, pod)) for pod in job.pods):
                found.append(policy)
    return found


def _admits(policy: Manifest, way: str, peers: str, job: Manifest) -> bool:
    for value in items(policy.spec.get(way.lower())) or []:
        listed = items((mapping(value) or {}).get(peers))
        if not listed:
            return True
        for entry in listed:
            peer = mapping(entry) or {}
            selector = mapping(peer.get("podSelector"))
            labels = mapping((selector or {}).get("matchLabels")) or {}
            expressions = not is_absent((selector or {}).get("matchExpressions"))
            if "podSelector" not in peer or selector is None or expressions:
                return True
            if all(_selects(labels, _labels(job, pod)) for pod in job.pods):
                return True
    return False


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
        for pod in manifest.pods:
            for path, found in _violations(pod, restricted=level == "restricted"):
                remedy = f"change it, or the level of namespace {manifest.namespace}"
                written = f"{found}, which {level} in its namespace refuses"
                yield manifest, manifest.find(Code.POD_ABOVE_NAMESPACE, path, written, remedy)


def _violations(pod: Pod, *, restricted: bool) -> Iterator[tuple[Path, str]]:
    path = pod.path[1:]
    for key in _HOST:
        if pod.spec.get(key) is True:
            yield (*path, key), key
    for index, value in enumerate(items(pod.spec.get("volumes")) or []):
        if "hostPath" in (mapping(value) or {}):
            yield (*path, "volumes", index), "a hostPath volume"
    outer = mapping(pod.spec.get("securityContext")) or {}
    for container in pod.containers:
        context = mapping(container.body.get("securityContext"))
        if context is not None:
            inner = (*container.path[1:], "securityContext")
            for key, said in _of_container(outer, context, restricted=restricted):
                yield (*inner, key), said


def _of_container(
    outer: Mapping[str, Json], context: Mapping[str, Json], *, restricted: bool
) -> Iterator[tuple[str, str]]:
    capabilities = mapping(context.get("capabilities")) or {}
    allowed = {"NET_BIND_SERVICE"} if restricted else _CAPABILITIES
    added = {text(each) or "" for each in items(capabilities.get("add")) or []}
    if context.get("privileged") is True:
        yield "privileged", "a privileged container"
    if added - allowed:
        yield "capabilities", f"capability {', '.join(sorted(added - allowed))}"
    if restricted:
        yield from _restricted(outer, context, capabilities)


def _restricted(
    outer: Mapping[str, Json], context: Mapping[str, Json], capabilities: Mapping[str, Json]
) -> Iterator[tuple[str, str]]:
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation", "privilege escalation that is not switched off"
    if "ALL" not in (items(capabilities.get("drop")) or []):
        yield "capabilities", "capabilities that are not all dropped"
    if context.get("runAsNonRoot", outer.get("runAsNonRoot")) is not True:
        yield "runAsNonRoot", "no runAsNonRoot: true"
    if 0 in (context.get("runAsUser"), outer.get("runAsUser")):
        yield "runAsUser", "user 0"
    profile = mapping(context.get("seccompProfile") or outer.get("seccompProfile")) or {}
    if profile.get("type") not in ("RuntimeDefault", "Localhost"):
        yield "seccompProfile", "no seccompProfile"


def _pods_beside(manifest: Manifest, together: ManifestSet) -> list[tuple[Manifest, Pod]]:
    return [
        (each, pod)
        for each in together.objects
        if each.namespace == manifest.namespace
        # Without a namespace only a file shows what is meant to be together.
        if manifest.namespace is not None or each.file == manifest.file
        for pod in each.pods
    ]


def _labels(manifest: Manifest, pod: Pod) -> Labels:
    """Return a pod's labels, with those that its controller adds."""
    labels = dict(pod.labels)
    if manifest.pytorch_replicas is not None:
        labels["training.kubeflow.org/job-name"] = manifest.name
        labels["training.kubeflow.org/operator-name"] = "pytorchjob-controller"
        labels["training.kubeflow.org/replica-type"] = str(pod.path[3]).lower()
    if manifest.kind == "Job":
        labels["job-name"] = labels["batch.kubernetes.io/job-name"] = manifest.name
    return labels


def _selects(selector: Labels, labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())
