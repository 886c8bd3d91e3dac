"""Rules over the ports and namespaces that a network policy admits."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_selection import pods_beside, selects
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_NAME = "kubernetes.io/metadata.name"


def admitted_ports(together: ManifestSet) -> Iterator[Found]:
    """Warn of a policy that admits no port on which a pod that it selects listens.

    Kubernetes, "Network Policies": the port is the pod's, behind whatever Service.
    """
    for policy in together.of("NetworkPolicy"):
        selector = mapping(policy.spec.get("podSelector")) or {}
        labels = mapping(selector.get("matchLabels")) or {}
        if not labels or not is_absent(selector.get("matchExpressions")):
            continue
        pods = [pod for each, pod in pods_beside(policy, together) if selects(labels, each, pod)]
        listened = _listened(pods)
        for index, value in enumerate(items(policy.spec.get("ingress")) or []):
            ports = items((mapping(value) or {}).get("ports"))
            bodies = [mapping(each) or {} for each in ports or []]
            if not ports or not listened or any(_meets(each, listened) for each in bodies):
                continue
            given = ", ".join(sorted(shown(each.get("port")) for each in bodies))
            there = ", ".join(sorted({str(number) for number, _ in listened}))
            found = f"admits port {given}, and its pods listen on {there}"
            path = ("spec", "ingress", index, "ports")
            remedy = "name the pod's port, not that of a Service"
            finding = policy.find(Code.POLICY_PORT, path, found, remedy, Level.WARNING)
            yield policy, finding


def namespaces(together: ManifestSet) -> Iterator[Found]:
    """Warn of a policy that selects namespaces by a label that Kubernetes does not set.

    Kubernetes, "Network Policies", targeting a namespace by its name: only
    kubernetes.io/metadata.name is on every namespace.
    """
    given = [each.labels.get("name") for each in together.of("Namespace")]
    for policy in together.of("NetworkPolicy"):
        for way, peers in (("ingress", "from"), ("egress", "to")):
            for index, value in enumerate(items(policy.spec.get(way)) or []):
                for place, each in enumerate(items((mapping(value) or {}).get(peers)) or []):
                    selector = mapping((mapping(each) or {}).get("namespaceSelector")) or {}
                    name = (mapping(selector.get("matchLabels")) or {}).get("name")
                    if not is_absent(name) and name not in given:
                        found = f"the label name: {shown(name)}, which no namespace has by itself"
                        path = ("spec", way, index, peers, place, "namespaceSelector")
                        remedy = f"select kubernetes.io/metadata.name: {name}"
                        finding = policy.find(Code.POLICY_PORT, path, found, remedy, Level.WARNING)
                        yield policy, finding


def labelled_namespaces(together: ManifestSet) -> Iterator[Found]:
    """Warn of a policy that admits namespaces by a label that those beside it have otherwise.

    Kubernetes, "Network Policies", namespaceSelector: what no selector meets is denied. Other
    namespaces may have the label, so a finding needs the key on one that stands with the policy.
    """
    for policy in together.of("NetworkPolicy"):
        near = [each for each in together.of("Namespace") if is_near(policy, each)]
        for way, peers in (("ingress", "from"), ("egress", "to")):
            for index, value in enumerate(items(policy.spec.get(way)) or []):
                for place, each in enumerate(items((mapping(value) or {}).get(peers)) or []):
                    selector = mapping((mapping(each) or {}).get("namespaceSelector")) or {}
                    wrong = other_labels(mapping(selector.get("matchLabels")) or {}, near)
                    if wrong is not None:
                        path = ("spec", way, index, peers, place, "namespaceSelector")
                        found, remedy = f"no namespace beside it has {wrong[0]}", wrong[1]
                        finding = policy.find(Code.POLICY_PORT, path, found, remedy, Level.WARNING)
                        yield policy, finding


def other_labels(wanted: "dict[str, Json]", near: list[Manifest]) -> tuple[str, str] | None:
    """Return a label that namespaces have with other values only, and what they have."""
    for key, value in wanted.items():
        there = {said for each in near if (said := text(each.labels.get(key))) is not None}
        said = text(value)
        if key != _NAME and there and said is not None and said not in there:
            odd = any(is_placeholder(each) for each in (said, *there))
            return None if odd else (f"{key}: {shown(value)}", f"there: {', '.join(sorted(there))}")
    return None


def _listened(pods: list[Pod]) -> list[tuple[int, str | None]]:
    """Return the ports of pods; none where a container names none, as it need not."""
    found = []
    for pod in pods:
        for container in pod.containers:
            ports = [mapping(each) or {} for each in items(container.body.get("ports")) or []]
            if not ports and not container.is_init:
                return []
            for body in ports:
                port = number(body.get("containerPort"))
                if port is not None:
                    found.append((port, text(body.get("name"))))
    return found


def _meets(body: "dict[str, Json]", listened: list[tuple[int, str | None]]) -> bool:
    first, last = body.get("port"), number(body.get("endPort"))
    port = number(first)
    return is_absent(first) or any(
        first == name or (port is not None and port <= each <= (last or port))
        for each, name in listened
    )
