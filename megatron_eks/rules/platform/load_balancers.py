"""Rule over what annotations and ranges tell the AWS Load Balancer Controller."""

import json
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_placeholder, is_range, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_ALB = "alb.ingress.kubernetes.io/"
_NLB = "service.beta.kubernetes.io/aws-load-balancer-"
_TARGETS = ("instance", "ip")
_WORDS = {
    ("Ingress", f"{_ALB}target-type"): _TARGETS,
    ("Service", f"{_NLB}nlb-target-type"): _TARGETS,
    ("Ingress", f"{_ALB}ip-address-type"): ("dualstack", "dualstack-without-public-ipv4", "ipv4"),
    ("Service", f"{_NLB}ip-address-type"): ("dualstack", "ipv4"),
}
_LISTEN = f"{_ALB}listen-ports"
_PROTOCOLS = frozenset({"HTTP", "HTTPS"})
_IN_JSON = (f"{_ALB}actions.", f"{_ALB}conditions.")


def settings(manifest: Manifest) -> Iterator[Finding]:
    """Refuse what the controller cannot read, and ranges that are none.

    AWS Load Balancer Controller, "Ingress annotations" and "Service annotations": at a value that
    it cannot read it makes no load balancer, and says so in an event; Kubernetes, ServiceSpec,
    loadBalancerSourceRanges.
    """
    notes = mapping((mapping(manifest.body.get("metadata")) or {}).get("annotations")) or {}
    for key, value in notes.items():
        said = text(value)
        path: Path = ("metadata", "annotations", key)
        if said is None or is_placeholder(said):
            continue
        words = _WORDS.get((manifest.kind, key))
        if words and said not in words:
            found = f"{shown(said)} is unknown to the controller: no load balancer is made"
            yield manifest.find(Code.SERVICE, path, found, f"write {' or '.join(words)}")
        if manifest.kind == "Ingress" and key == _LISTEN and not _listens(said):
            found = f"{shown(said)} is no list of ports in JSON: no load balancer is made"
            one = said if isinstance(_read(said), dict) else '{"HTTPS": 443}'
            yield manifest.find(Code.SERVICE, path, found, f"write '[{one}]'")
        if manifest.kind == "Ingress" and key.startswith(_IN_JSON) and _read(said) is None:
            found = "no JSON: no load balancer is made"
            yield manifest.find(Code.SERVICE, path, found, "write it as JSON, in single quotes")
    if manifest.kind != "Service":
        return
    for index, value in enumerate(items(manifest.spec.get("loadBalancerSourceRanges")) or []):
        said = text(value)
        if said is not None and not is_placeholder(said) and not is_range(said.strip()):
            found = f"{shown(said)} is no range of addresses: the API server refuses the Service"
            path = ("spec", "loadBalancerSourceRanges", index)
            yield manifest.find(Code.WRONG_VALUE, path, found, "write it as 10.0.0.0/16")


def _read(written: str) -> Json:
    try:
        value: Json = json.loads(written)
    except ValueError:
        return None
    return value


def _listens(written: str) -> bool:
    value = _read(written)
    return isinstance(value, list) and all(
        isinstance(each, dict)
        and {*each} <= _PROTOCOLS
        and all(isinstance(port, int) for port in each.values())
        for each in value
    )
