"""Judges network policies as a network plugin does: who reaches whom, on which port."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Literal

from tests.charts.rendered import Manifest

Port = tuple[int, Literal["TCP", "UDP"]]


@dataclass(frozen=True)
class Peer:
    """One end of a connection; addresses outside the cluster have no namespace."""

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "10.0.0.99"


def policies(manifests: list[Manifest]) -> list[Manifest]:
    """Return the network policies among some objects."""
    return [each for each in manifests if each["kind"] == "NetworkPolicy"]


def outside(address: str) -> Peer:
    """Return an address."""
    return Peer(address=address)


def reaches(policies: list[Manifest], source: Peer, target: Peer, port: Port) -> bool:
    """Tell whether a connection is let out and let in."""
    leaves = side_allows(policies, source, target, port, "Egress")
    return leaves and side_allows(policies, target, source, port, "Ingress")


def side_allows(
    policies: list[Manifest],
    subject: Peer,
    peer: Peer,
    port: Port,
    direction: Literal["Ingress", "Egress"],
) -> bool:
    """Apply the rule of Kubernetes: a pod that no policy selects is open, others need a rule."""
    selecting = [
        policy["spec"]
        for policy in policies
        if policy["metadata"]["namespace"] == subject.namespace
        and direction in policy["spec"]["policyTypes"]
        and matches(policy["spec"]["podSelector"], subject.labels)
    ]
    end = "to" if direction == "Egress" else "from"
    rules = (rule for spec in selecting for rule in spec.get(direction.lower(), ()))
    return not selecting or any(
        any(is_peer(entry, peer, subject.namespace) for entry in rule[end]) and has_port(rule, port)
        for rule in rules
    )


def is_peer(entry: Mapping[str, Any], peer: Peer, namespace: str) -> bool:
    """Tell whether an entry of `from` or `to` means this end."""
    if block := entry.get("ipBlock"):
        address = ip_address(peer.address)
        inside = address in ip_network(block["cidr"])
        return inside and not any(address in ip_network(cut) for cut in block.get("except", ()))
    if selector := entry.get("namespaceSelector"):
        if not matches(selector, {"kubernetes.io/metadata.name": peer.namespace}):
            return False
    elif peer.namespace != namespace:
        return False
    return matches(entry.get("podSelector", {}), peer.labels)


def has_port(rule: Mapping[str, Any], port: Port) -> bool:
    """Tell whether a rule holds for a port; without a list it holds for all."""
    listed = [(entry["port"], entry["protocol"]) for entry in rule.get("ports", ())]
    return not listed or port in listed


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Tell whether labels match a selector."""
    wanted: Iterator[tuple[str, str]] = iter(selector.get("matchLabels", {}).items())
    expressions = selector.get("matchExpressions", ())
    assert all(expression["operator"] == "Exists" for expression in expressions)
    return all(labels.get(key) == value for key, value in wanted) and all(
        expression["key"] in labels for expression in expressions
    )
