"""Rules over servers without a password, and the load balancers that lead the internet to them."""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, may_share
from megatron_eks.rules.objects.pod_selection import pods_beside, selects
from megatron_eks.rules.values import is_absent, items, mapping, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_SERVICE = "service.beta.kubernetes.io/"
_BALANCER = f"{_SERVICE}aws-load-balancer-"
_ALB = "alb.ingress.kubernetes.io/"
_ANYWHERE = frozenset({"0.0.0.0/0", "::/0"})
_TENSORBOARD = re.compile(r"(^|[/\s])tensorboard(\s|$)|tensorboard\.main")
_JUPYTER = re.compile(r"jupyter[-\s](lab|notebook|server)|start-notebook")
_EMPTY_TOKEN = re.compile(r"\.token=(''|\"\")?(?=[\s;]|$)")
_MLFLOW = re.compile(r"mlflow\s+(server|ui)\b(?!.*basic-auth)")
_PROMETHEUS = re.compile(r"(^|/)prom/prometheus[:@]")
# A container that asks for a password in front of the server.
_GUARD = re.compile(r"auth|proxy|nginx|envoy|pomerium")


def services(together: ManifestSet) -> Iterator[Found]:
    """Warn of a Service by which the internet reaches a server that asks nobody who he is.

    AWS Load Balancer Controller, "Service annotations": scheme, and load-balancer-source-ranges,
    without which 0.0.0.0/0 is allowed; TensorBoard, README: it has no authentication.
    """
    for service in together.of("Service"):
        path = _place(service)
        server = _behind(service, together) if path is not None else None
        if path is not None and server is not None:
            found = f"the internet reaches {server}"
            remedy = "make it internal, or list your own loadBalancerSourceRanges"
            yield service, service.find(Code.SERVICE, path, found, remedy, Level.WARNING)


def ingresses(together: ManifestSet) -> Iterator[Found]:
    """Warn of an Ingress by which the internet reaches such a server.

    AWS Load Balancer Controller, "Ingress annotations": scheme, inbound-cidrs (0.0.0.0/0 unless
    said), auth-type; the controller's class may set the same by IngressClassParams.
    """
    for ingress in together.of("Ingress"):
        notes = _notes(ingress)
        guards = ("auth-type", "security-groups", "security-group-prefix-lists", "wafv2-acl-arn")
        guarded = any(f"{_ALB}{each}" in notes for each in guards)
        ranges = _split(notes.get(f"{_ALB}inbound-cidrs"))
        public = text(notes.get(f"{_ALB}scheme")) == "internet-facing"
        if not public or guarded or not _is_open(ranges) or together.of("IngressClassParams"):
            continue
        names = set(_backends(dict(ingress.spec)))
        for service in together.of("Service"):
            here = service.name in names and may_share(ingress, service)
            server = _behind(service, together) if here else None
            if server is not None:
                path: Path = ("metadata", "annotations", f"{_ALB}scheme")
                found = f"the internet reaches {server}, by {service.title}"
                remedy = f"write internal, your own {_ALB}inbound-cidrs, or an auth-type"
                yield ingress, ingress.find(Code.SERVICE, path, found, remedy, Level.WARNING)
                break


def _place(service: Manifest) -> Path | None:
    """Return what lets the internet in, if something surely does."""
    if service.spec.get("type") != "LoadBalancer":
        return None
    notes = _notes(service)
    listed = items(service.spec.get("loadBalancerSourceRanges"))
    by_note = _split(notes.get(f"{_SERVICE}load-balancer-source-ranges"))
    ranges = [str(each) for each in listed or []] or by_note
    own_groups = any(key.startswith(f"{_BALANCER}security-groups") for key in notes)
    if own_groups or not _is_open(ranges):
        return None
    if text(notes.get(f"{_BALANCER}scheme")) == "internet-facing":
        return ("metadata", "annotations", f"{_BALANCER}scheme")
    # Without ranges, and without a word about the balancer, it has its own finding.
    plain = not any(key.startswith(_BALANCER) for key in notes)
    classed = not is_absent(service.spec.get("loadBalancerClass"))
    return ("spec", "loadBalancerSourceRanges") if listed and plain and not classed else None


def _notes(manifest: Manifest) -> Mapping[str, Json]:
    return mapping((mapping(manifest.body.get("metadata")) or {}).get("annotations")) or {}


def _split(value: Json) -> list[str]:
    return [each.strip() for each in (text(value) or "").split(",") if each.strip()]


def _is_open(ranges: list[str]) -> bool:
    return not ranges or not _ANYWHERE.isdisjoint(ranges)


def _backends(value: Json) -> Iterator[str]:
    """Return the Services that an Ingress names, wherever."""
    body = mapping(value)
    if body is not None:
        name = text((mapping(body.get("service")) or {}).get("name"))
        if name is not None:
            yield name
    for each in body.values() if body is not None else items(value) or []:
        yield from _backends(each)


def _behind(service: Manifest, together: ManifestSet) -> str | None:
    """Name the server without a password among the pods of a Service."""
    labels = mapping(service.spec.get("selector")) or {}
    for maker, pod in pods_beside(service, together) if labels else ():
        if selects(labels, maker, pod) and not _is_guarded(pod):
            said = next((one for each in pod.containers if (one := _server(each))), None)
            if said is not None:
                return said
    return None


def _is_guarded(pod: Pod) -> bool:
    images = [str(each.body.get("image")) for each in pod.containers]
    return any(_GUARD.search(image.rpartition("/")[2]) for image in images)


def _server(container: Container) -> str | None:
    given = {each.name: (each.value or "").lower() for each in container.variables}
    if _TENSORBOARD.search(container.line):
        return "TensorBoard, which asks for no password"
    unset = _EMPTY_TOKEN.search(container.line) or given.get("JUPYTER_TOKEN") == ""
    if _JUPYTER.search(container.line) and unset:
        return "Jupyter with an empty token, and so a shell in this pod"
    if given.get("GF_AUTH_ANONYMOUS_ENABLED") == "true":
        return "Grafana, which lets in anybody"
    if _MLFLOW.search(container.line):
        return "MLflow, which asks for no password"
    if _PROMETHEUS.search(str(container.body.get("image"))) and "web.config" not in container.line:
        return "Prometheus, which asks for no password"
    return None
