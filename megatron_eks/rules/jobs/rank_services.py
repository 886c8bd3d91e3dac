"""Rules over the Services that give ranks their names."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, may_share
from megatron_eks.rules.objects.pod_selection import pods_beside, selects
from megatron_eks.rules.values import is_absent, is_placeholder, mapping, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_FLAGS = ("master-addr", "rdzv-endpoint")
_VARIABLES = ("MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "RDZV_ENDPOINT")
_OF_A_POD = re.compile(r".*-[0-9]+")
_PORT = re.compile(r":[0-9$({][^:]*$")


def rank_services(together: ManifestSet) -> Iterator[Found]:
    """Require of a Service that gives pods their names that it is headless.

    Kubernetes, "DNS for Services and Pods", pod's hostname and subdomain: only a headless Service
    has records of its pods; any other has one address, and answers with whichever pod it likes.
    """
    for service in together.of("Service"):
        if service.name is None or is_placeholder(service.name) or not _has_an_address(service):
            continue
        users = [
            (manifest, pod)
            for manifest in together.objects
            if may_share(manifest, service)
            for pod in manifest.pods
            if pod.spec.get("subdomain") == service.name
        ]
        hosts = {host for pod in _pods_near(service, together) for host in _hosts(pod)}
        by_name = [host for host in hosts if _service_of(host, 1) == service.name]
        path, remedy = ("spec", "clusterIP"), "write clusterIP: None"
        if users or by_name:
            title = users[0][0].title if users else None
            found = f"gives the pods of {title} their names" if title else f"{by_name[0]} is a pod"
            found += ", and only a headless Service does so: no such name resolves"
            level = Level.ERROR if by_name else Level.WARNING
            yield service, service.find(Code.SERVICE, path, found, remedy, level)
        elif any(_service_of(host, 0) == service.name for host in hosts):
            count = _selected(service, together)
            if count > 1:
                found = f"the ranks meet here, and it leads to any of {count} pods by chance"
                remedy = "select the first pod alone, or name it by a headless Service"
                path = ("spec", "selector")
                yield service, service.find(Code.SERVICE, path, found, remedy, Level.WARNING)


def _has_an_address(service: Manifest) -> bool:
    """Tell a Service with an address of its own from a headless or an outer one."""
    address = service.spec.get("clusterIP")
    known = is_absent(address) or (isinstance(address, str) and not is_placeholder(address))
    return known and address != "None" and service.spec.get("type") != "ExternalName"


def _pods_near(service: Manifest, together: ManifestSet) -> list[Pod]:
    return [pod for each in together.objects if may_share(each, service) for pod in each.pods]


def _hosts(pod: Pod) -> Iterator[str]:
    """Return where a pod's ranks are told to meet."""
    for container in pod.containers:
        for value in _places(container):
            host = _PORT.sub("", value)
            if host and "$" not in host and not is_placeholder(host):
                yield host


def _places(container: Container) -> Iterator[str]:
    for _, name, value in launcher_flags(container):
        if name in _FLAGS:
            yield value
    for each in container.variables:
        if each.name in _VARIABLES and each.value is not None:
            yield each.value


def _service_of(host: str, place: int) -> str | None:
    """Return the part of a host that names a Service: its first one, or that behind a pod's."""
    parts = host.split(".")
    if place == 1 and len(parts) > 1:
        # SERVICE.NAMESPACE begins with the Service itself; pods are numbered.
        return parts[1] if _OF_A_POD.fullmatch(parts[0]) and parts[2:3] != ["svc"] else None
    return parts[0] if place == 0 else None


def _selected(service: Manifest, together: ManifestSet) -> int:
    """Return how many pods a Service leads to; 0 where nobody can know."""
    selector = mapping(service.spec.get("selector")) or {}
    if not selector or any(text(each) is None for each in selector.values()):
        return 0
    chosen = [
        pod for manifest, pod in pods_beside(service, together) if selects(selector, manifest, pod)
    ]
    return sum(1 if pod.replicas is None else pod.replicas for pod in chosen)
