"""Rule over the Services that a launcher's rendezvous names: that they are there, at that port."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, may_share
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown
from megatron_eks.rules.workloads import Manifest

_STORES = frozenset({"etcd", "etcd-v2"})


def stores(together: ManifestSet) -> Iterator[Found]:
    """Require of the Service at which ranks meet that it has the port, and of etcd's that it is.

    Kubernetes, "Service": an address of its own answers at the ports of the Service alone.
    torch/distributed/run.py, --rdzv-endpoint; etcd serves clients at 2379 and its peers at 2380.
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            for container in pod.containers:
                flags = {name: (path, value) for path, name, value in launcher_flags(container)}
                path, value = flags.get("rdzv-endpoint", ((), ""))
                host, _, port = value.rpartition(":")
                name = host.split(".")[0]
                if "$" in value or not name or number(port) is None or is_placeholder(name):
                    continue
                service = together.named(manifest, "Service", name)
                if service is not None:
                    yield from _port(manifest, path, value, service)
                elif flags.get("rdzv-backend", ((), ""))[1] in _STORES:
                    yield from _missing(manifest, path, value, together)


def _port(manifest: Manifest, path: Path, value: str, service: Manifest) -> Iterator[Found]:
    ports = _ports(service)
    address = service.spec.get("clusterIP")
    own = is_absent(address) or (isinstance(address, str) and address != "None")
    asked = number(value.rpartition(":")[2])
    if own and ports and asked not in ports and service.spec.get("type") != "ExternalName":
        there = ", ".join(map(str, sorted(ports)))
        found = f"{shown(value)}, and {service.title} has port {there} alone: nothing answers"
        remedy = f"write {value.rpartition(':')[0]}:{min(ports)}"
        yield manifest, manifest.find(Code.RENDEZVOUS_FLAG, path[1:], found, remedy)


def _missing(manifest: Manifest, path: Path, value: str, together: ManifestSet) -> Iterator[Found]:
    """Warn of a name that no Service has, where another one beside has the port of a store."""
    port = number(value.rpartition(":")[2])
    near = sorted(
        str(each.name)
        for each in together.of("Service")
        if each.name and may_share(manifest, each) and port in _ports(each)
    )
    if len(near) == 1 and "." not in value:
        found = f"{shown(value)}, and no Service of that name is among these objects"
        remedy = f"write {near[0]}:{port}"
        finding = manifest.find(Code.RENDEZVOUS_FLAG, path[1:], found, remedy, Level.WARNING)
        yield manifest, finding


def _ports(service: Manifest) -> "set[int]":
    """Return a Service's ports; none where one of them is not known."""
    given = [
        number((mapping(each) or {}).get("port")) for each in items(service.spec.get("ports")) or []
    ]
    known = {each for each in given if each is not None}
    return known if len(known) == len(given) else set()
