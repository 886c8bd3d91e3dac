"""Rules over Ingresses: the Services that they lead to, and the schemes of load balancers."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_SCHEMES = ("internal", "internet-facing")
_OF_SCHEMES = {
    "Service": "service.beta.kubernetes.io/aws-load-balancer-scheme",
    "Ingress": "alb.ingress.kubernetes.io/scheme",
}
_CLOSE = 0.8
_TARGET = "alb.ingress.kubernetes.io/target-type"
_ON_NODES = ("NodePort", "LoadBalancer")
# The controller reads the backend from an annotation of that name (actions.NAME).
_BY_NOTE = "use-annotation"


def schemes(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a scheme that the load balancer's controller does not know.

    AWS Load Balancer Controller, "Service annotations" and "Ingress annotations", scheme: internal
    or internet-facing; with another word no load balancer is made.
    """
    key = _OF_SCHEMES.get(manifest.kind)
    said = text(_notes(manifest).get(key)) if key is not None else None
    if key is not None and said is not None and said not in _SCHEMES and not is_placeholder(said):
        path = ("metadata", "annotations", key)
        found = f"no scheme {shown(said)}: no load balancer is made"
        yield manifest.find(Code.SERVICE, path, found, f"write {' or '.join(_SCHEMES)}")


def _notes(manifest: Manifest) -> "dict[str, Json]":
    return mapping((mapping(manifest.body.get("metadata")) or {}).get("annotations")) or {}


def backends(together: ManifestSet) -> Iterator[Found]:
    """Warn of an Ingress that leads to no Service, or to no port of its Service.

    Kubernetes, "Ingress": the backend is a Service of the same namespace, by its own port; the
    load balancer answers 503 otherwise.
    """
    for ingress in together.of("Ingress"):
        near = together.beside(ingress, "Service")
        names = [each.name for each in near if each.name]
        for path, body in _services(dict(ingress.spec), ("spec",)):
            name = text(body.get("name"))
            if name is None or is_placeholder(name):
                continue
            port = mapping(body.get("port")) or {}
            if name not in names:
                close = get_close_matches(name, names, 1, _CLOSE)
                if close and text(port.get("name")) != _BY_NOTE:
                    found = f"no Service {shown(name)} among these objects"
                    place, remedy = (*path, "name"), f"did you mean {close[0]}?"
                    finding = ingress.find(Code.SERVICE, place, found, remedy, Level.WARNING)
                    yield ingress, finding
                continue
            service = next(each for each in near if each.name == name)
            said = _unknown(port, service)
            if said is not None:
                place, found = (*path, "port"), f"port {said[0]}, and {service.title} has {said[1]}"
                remedy = "name a port of the Service, not that of its pods"
                finding = ingress.find(Code.SERVICE, place, found, remedy, Level.WARNING)
                yield ingress, finding


def targets(together: ManifestSet) -> Iterator[Found]:
    """Refuse that an Application Load Balancer finds nodes by a Service that has no port on them.

    AWS Load Balancer Controller, "Ingress annotations", target-type (instance unless one is said),
    and issues 2589 and 4014: instance targets need a NodePort or a LoadBalancer.
    """
    for ingress in together.of("Ingress"):
        said = text(_notes(ingress).get(_TARGET))
        # The controller, and parameters of a class, may have another default.
        if said != "instance":
            continue
        near = together.beside(ingress, "Service")
        for path, body in _services(dict(ingress.spec), ("spec",)):
            service = next((each for each in near if each.name == text(body.get("name"))), None)
            kind = service.spec.get("type", "ClusterIP") if service is not None else "NodePort"
            if service is None or kind in _ON_NODES or _TARGET in _notes(service):
                continue
            if isinstance(kind, str) and not is_placeholder(kind):
                found = f"{service.title} is a {kind}, which has no port on the nodes: no target "
                found += "group is made"
                remedy = f"write {_TARGET}: ip, or type: NodePort at the Service"
                yield ingress, ingress.find(Code.SERVICE, (*path, "name"), found, remedy)


def _unknown(port: "dict[str, Json]", service: Manifest) -> tuple[str, str] | None:
    """Return a backend's port that its Service lacks, and what the Service has."""
    listed = [mapping(each) or {} for each in items(service.spec.get("ports")) or []]
    there: dict[str, list[int | str | None]] = {
        "number": [number(each.get("port")) for each in listed],
        "name": [text(each.get("name")) for each in listed],
    }
    if not listed or None in there["number"]:
        return None
    wanted = {"number": number(port.get("number")), "name": text(port.get("name"))}
    for key, value in wanted.items():
        odd = value == _BY_NOTE or is_placeholder(str(value))
        if value is not None and not odd and value not in there[key]:
            return shown(value), ", ".join(str(each) for each in there[key])
    return None


def _services(value: Json, path: Path) -> Iterator[tuple[Path, "dict[str, Json]"]]:
    """Return the Services that an Ingress names, each with its place."""
    body = mapping(value)
    service = mapping((body or {}).get("service"))
    if service is not None:
        yield (*path, "service"), service
    for key, each in (body or {}).items():
        yield from _services(each, (*path, key))
    for index, each in enumerate(items(value) or [] if body is None else []):
        yield from _services(each, (*path, index))
