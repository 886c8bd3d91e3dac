"""Rule over network policies that keep the API server from a webhook's pods."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_selection import pods_beside, selects
from megatron_eks.rules.objects.workload_set import chosen
from megatron_eks.rules.platform.webhooks import KINDS
from megatron_eks.rules.values import is_absent, items, mapping, number, text
from megatron_eks.rules.workloads import Manifest, Pod

_HTTPS = 443


def reached(together: ManifestSet) -> Iterator[Found]:
    """Warn of policies by which no call of the API server reaches a webhook.

    Kubernetes, "Network Policies" and "Dynamic Admission Control": the API server is no pod, so a
    policy admits it by address or by port alone; with failurePolicy Fail all objects are refused.
    """
    for manifest in together.of(*KINDS):
        for value in items(manifest.body.get("webhooks")) or []:
            hook = mapping(value) or {}
            service = mapping((mapping(hook.get("clientConfig")) or {}).get("service")) or {}
            name, space = text(service.get("name")), text(service.get("namespace"))
            target = next(
                (e for e in together.of("Service") if (e.name, e.namespace) == (name, space)), None
            )
            selector = mapping(target.spec.get("selector")) if target is not None else None
            if target is None or not selector:
                continue
            pods = [
                (each, pod)
                for each, pod in pods_beside(target, together)
                if selects(selector, each, pod)
            ]
            for owner, pod in pods[:1]:
                port = _port(target, number(service.get("port")) or _HTTPS, pod)
                applied = [
                    each
                    for each in together.of("NetworkPolicy")
                    if each.namespace == space and _isolates(each, owner, pod)
                ]
                if (
                    port is None
                    or not applied
                    or any(_lets_in(each, port, pod) for each in applied)
                    or _is_another(port, pod, applied)
                ):
                    continue
                names = ", ".join(each.title for each in applied)
                found = f"{names} keeps the API server from port {port} of its webhook"
                refuses = hook.get("failurePolicy", "Fail") == "Fail"
                found += ": all of its objects are refused" if refuses else ""
                remedy = f"admit port {port} from everywhere, or from the cluster's addresses"
                path = ("spec", "template", "metadata", "labels")
                yield owner, owner.find(Code.POLICY_PORT, path, found, remedy, Level.WARNING)
            break


def _is_another(port: int, pod: Pod, applied: list[Manifest]) -> bool:
    """Tell whether the pod lists other ports, one of which is admitted: the Service is at fault."""
    listed = [
        number((mapping(each) or {}).get("containerPort"))
        for container in pod.containers
        for each in items(container.body.get("ports")) or []
    ]
    admitted = (_lets_in(rule, each, pod) for rule in applied for each in listed if each)
    return port not in listed and any(admitted)


def _port(service: Manifest, port: int, pod: Pod) -> int | None:
    """Return the pod's port behind one of a Service."""
    for value in items(service.spec.get("ports")) or []:
        body = mapping(value) or {}
        if number(body.get("port")) == port:
            target = body.get("targetPort")
            if is_absent(target):
                return port
            return number(target) or _named(pod).get(str(target))
    return None


def _named(pod: Pod) -> dict[str, int | None]:
    return {
        str(body.get("name")): number(body.get("containerPort"))
        for container in pod.containers
        for value in items(container.body.get("ports")) or []
        if (body := mapping(value) or {})
    }


def _isolates(policy: Manifest, owner: Manifest, pod: Pod) -> bool:
    types = items(policy.spec.get("policyTypes")) or []
    selector = mapping(policy.spec.get("podSelector"))
    ingress = "Ingress" in types if types else True
    return ingress and selector is not None and chosen(selector, owner, pod)


def _lets_in(policy: Manifest, port: int, pod: Pod) -> bool:
    """Tell whether a policy may admit the API server to a port."""
    value = policy.spec.get("ingress")
    rules = items(value)
    if rules is None:
        return True
    for each in rules:
        rule = mapping(each) or {}
        peers = items(rule.get("from"))
        outside = not peers or any("ipBlock" in (mapping(peer) or {}) for peer in peers)
        if outside and _opens(items(rule.get("ports")) or [], port, pod):
            return True
    return False


def _opens(ports: "list[Json]", port: int, pod: Pod) -> bool:
    if not ports:
        return True
    for value in ports:
        body = mapping(value) or {}
        given = body.get("port")
        first = number(given) or _named(pod).get(str(given))
        last = number(body.get("endPort")) or first
        if is_absent(given) or (first is not None and last is not None and first <= port <= last):
            return True
    return False
