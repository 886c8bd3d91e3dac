"""Rule over what annotations and ranges tell the AWS Load Balancer Controller."""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
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
_CERTIFICATES = (f"{_ALB}certificate-arn", f"{_NLB}ssl-cert")
_ARN = re.compile(r"arn:aws[a-z-]*:(acm:[a-z0-9-]+:[0-9]{12}:certificate/.+|iam::[0-9]{12}:.+)")
_CLOSE = 0.8
_OF_ALB = (
    *("auth-idp-cognito", "auth-idp-oidc", "auth-on-unauthenticated-request", "auth-scope"),
    *("auth-session-cookie", "auth-session-timeout", "auth-type", "backend-protocol"),
    *("backend-protocol-version", "certificate-arn", "customer-owned-ipv4-pool", "frontend-nlb"),
    *("frontend-nlb-scheme", "frontend-nlb-subnets", "group.name", "group.order"),
    *("healthcheck-interval-seconds", "healthcheck-path", "healthcheck-port"),
    *("healthcheck-protocol", "healthcheck-timeout-seconds", "healthy-threshold-count"),
    *("inbound-cidrs", "inbound-cidrs-ipv6", "ip-address-type", "ipam-ipv4-pool-id"),
    *("listen-ports", "load-balancer-attributes", "load-balancer-name"),
    *("manage-backend-security-group-rules", "minimum-load-balancer-capacity"),
    *("multi-cluster-target-group", "mutual-authentication", "scheme"),
    *("security-group-prefix-lists", "security-groups", "shield-advanced-protection"),
    *("ssl-policy", "ssl-redirect", "subnets", "success-codes", "tags"),
    *("target-group-attributes", "target-node-labels", "target-type"),
    *("unhealthy-threshold-count", "use-regex-path-match", "waf-acl-id", "wafv2-acl-arn"),
    "wafv2-acl-name",
)
_OF_NLB = (
    *("access-log-emit-interval", "access-log-enabled", "access-log-s3-bucket-name"),
    *("access-log-s3-bucket-prefix", "additional-resource-tags", "alpn-policy", "attributes"),
    *("backend-protocol", "connection-draining-enabled", "connection-draining-timeout"),
    *("connection-idle-timeout", "cross-zone-load-balancing-enabled", "eip-allocations"),
    *("extra-security-groups", "healthcheck-healthy-threshold", "healthcheck-interval"),
    *("healthcheck-path", "healthcheck-port", "healthcheck-protocol"),
    *("healthcheck-success-codes", "healthcheck-timeout", "healthcheck-unhealthy-threshold"),
    *("inbound-sg-rules-on-private-link-traffic", "internal", "ip-address-type"),
    *("ipv6-addresses", "listener-attributes", "manage-backend-security-group-rules"),
    *("minimum-load-balancer-capacity", "multi-cluster-target-group", "name"),
    *("nlb-target-type", "private-ipv4-addresses", "proxy-protocol", "scheme"),
    *("security-group-prefix-lists", "security-groups", "source-nat-ipv6-prefixes", "ssl-cert"),
    *("ssl-negotiation-policy", "ssl-ports", "subnets", "target-group-attributes"),
    *("target-node-labels", "type", "enable-prefix-for-ipv6-source-nat", "disable-nlb-sg"),
    *("enable-tcp-udp-listener", "enable-icmp-for-path-mtu-discovery"),
)
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
        unread = _nearest(manifest.kind, key)
        if unread is not None:
            found = f"the controller reads no {shown(key)}: it has no effect"
            yield manifest.find(Code.SERVICE, path, found, f"did you mean {unread}?", Level.WARNING)
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
    yield from _certificates(manifest, notes)
    if manifest.kind != "Service":
        return
    for index, value in enumerate(items(manifest.spec.get("loadBalancerSourceRanges")) or []):
        said = text(value)
        if said is not None and not is_placeholder(said) and not is_range(said.strip()):
            found = f"{shown(said)} is no range of addresses: the API server refuses the Service"
            path = ("spec", "loadBalancerSourceRanges", index)
            yield manifest.find(Code.WRONG_VALUE, path, found, "write it as 10.0.0.0/16")


def _certificates(manifest: Manifest, notes: "dict[str, Json]") -> Iterator[Finding]:
    for key in _CERTIFICATES:
        said = text(notes.get(key)) or ""
        for each in said.split(",") if said and not is_placeholder(said) else []:
            if not _ARN.fullmatch(each.strip()):
                found = f"{shown(each)} is no ARN of a certificate: no load balancer is made"
                path: Path = ("metadata", "annotations", key)
                remedy = "write arn:aws:acm:REGION:ACCOUNT:certificate/ID"
                yield manifest.find(Code.SERVICE, path, found, remedy)


def _nearest(kind: str, key: str) -> str | None:
    """Return the annotation that one which the controller does not read nearly is."""
    for of, prefix, names in (("Ingress", _ALB, _OF_ALB), ("Service", _NLB, _OF_NLB)):
        name = key.removeprefix(prefix)
        if kind != of or name == key or name in names or "." in name.split("-")[0]:
            continue
        close = get_close_matches(name, names, 1, _CLOSE)
        return f"{prefix}{close[0]}" if close else None
    return None


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
