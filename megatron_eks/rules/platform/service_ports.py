"""Rule over a Service's ports by number, and what the pods behind it listen on."""

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.pod_selection import may_select, pods_beside
from megatron_eks.rules.values import is_absent, items, mapping, number, text
from megatron_eks.rules.workloads import Pod

_ALIKE = 0.7


def numbers(together: ManifestSet) -> Iterator[Found]:
    """Warn of a port of a Service that is nearly, and not quite, one that its pods listen on.

    Kubernetes, "Service", targetPort: it is the pod's port. A container need not list what it
    listens on, so a finding needs a port of the same name, a number much like it, or no other.
    """
    for service in together.of("Service"):
        selector = mapping(service.spec.get("selector")) or {}
        pods = [
            pod for each, pod in pods_beside(service, together) if may_select(selector, each, pod)
        ]
        given = _listed(pods) if selector else {}
        ports = [mapping(each) or {} for each in items(service.spec.get("ports")) or []]
        targets = [_target(each) for each in ports]
        for index, (body, target) in enumerate(zip(ports, targets, strict=True)):
            # One that another port of the Service leads to is not meant here.
            free = {port: name for port, name in given.items() if port not in targets}
            if target is None or target in given or not free:
                continue
            alone = len(ports) == len(given) == 1
            for port, name in free.items():
                same = name is not None and name in {
                    text(body.get("name")),
                    text(body.get("targetPort")),
                }
                # Two that have names, and not the same ones, are two things.
                apart = name is not None and not is_absent(body.get("name")) and len(ports) <= 1
                like = (
                    not (apart and not same)
                    and SequenceMatcher(None, str(port), str(target)).ratio() >= _ALIKE
                )
                if same or like or alone:
                    found = f"port {target} of pods that list {port}: nobody answers there"
                    key = "port" if is_absent(body.get("targetPort")) else "targetPort"
                    path = ("spec", "ports", index, key)
                    remedy = f"write targetPort: {port}, or list the port in the container"
                    finding = service.find(Code.SERVICE, path, found, remedy, Level.WARNING)
                    yield service, finding
                    break


def _target(body: Mapping[str, Json]) -> int | None:
    target = body.get("targetPort")
    return number(body.get("port")) if is_absent(target) else number(target)


def _listed(pods: list[Pod]) -> dict[int, str | None]:
    """Return the ports of every pod, with their names; none where a container lists none."""
    found: dict[int, str | None] = {}
    for pod in pods:
        for container in pod.containers:
            ports = [mapping(each) or {} for each in items(container.body.get("ports")) or []]
            if not ports and not container.is_init:
                return {}
            for body in ports:
                port = number(body.get("containerPort"))
                if port is not None:
                    found[port] = text(body.get("name"))
    return found
