"""Rules over network policies that admit more, or something else, than they were written for."""

import ipaddress
import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_WAYS = (("ingress", "from", "Ingress"), ("egress", "to", "Egress"))
_DENIES = re.compile(r"(^|[-_.])(deny|block|isolate|isolation|lock-?down|no)([-_.]|$)")
# Amazon EKS User Guide, "Set up the Amazon EKS Pod Identity Agent"; Amazon ECS Developer Guide,
# "Task IAM role"; EC2 User Guide, "Instance metadata", "Amazon DNS server", "Amazon Time Sync".
_AGENT, _AGENT_V6, _AGENT_PORT = "169.254.170.23", "fd00:ec2::23", 80
_ECS, _METADATA = "169.254.170.2", ("169.254.169.254", "fd00:ec2::254")
# A resolver on the node may have another address of 169.254.0.0/16.
_LINK_LOCAL = ipaddress.IPv4Network("169.254.168.0/22")
_WHOLE = ipaddress.IPv4Network("169.254.0.0/16")
_EC2_V6 = ipaddress.ip_network("fd00:ec2::/32")
_ANSWER = frozenset(
    {
        *(_AGENT, _AGENT_V6, *_METADATA, "169.254.169.253", "fd00:ec2::253"),
        *("169.254.169.123", "fd00:ec2::123", "169.254.20.10", "169.254.169.249"),
        *("169.254.169.250", "169.254.169.251"),
    }
)
_OF_ROLES = re.compile(r"pod-?identity|credential|irsa|iam")


def wide_peers(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an item that admits everybody whom the narrow items beside it were to choose from.

    Kubernetes, "Network Policies", behavior of to and from selectors: items of one list, and rules
    of one direction, are alternatives; an empty selector takes all.
    """
    for way, peers, _ in _ways(manifest):
        rules = [mapping(each) or {} for each in items(manifest.spec.get(way)) or []]
        narrow = [each for each in rules if items(each.get(peers)) or items(each.get("ports"))]
        for index, rule in enumerate(rules):
            path: Path = ("spec", way, index)
            if not (items(rule.get(peers)) or items(rule.get("ports"))) and narrow:
                found = "a rule without peers and ports admits all, beside rules that choose"
                yield _warn(manifest, path, found, "remove it, or say whom it admits")
                continue
            listed = [mapping(each) for each in items(rule.get(peers)) or []]
            for place, peer in enumerate(listed):
                others = [each for each in listed if each and each is not peer]
                said = _widens(peer, others)
                if said is not None:
                    remedy = "put it into the item that it was to narrow, or remove it"
                    yield _warn(manifest, (*path, peers, place), said, remedy)


def _widens(peer: "Mapping[str, Json] | None", others: "list[dict[str, Json]]") -> str | None:
    """Say what an item takes in that the others choose from."""
    if not peer or "ipBlock" in peer:
        return None
    if "namespaceSelector" in peer and _is_all(peer, "namespaceSelector"):
        chosen = [each for each in others if "ipBlock" not in each and not _is_everybody(each)]
        if _is_all(peer, "podSelector") and chosen:
            return "every pod of every namespace, beside items that choose some of them"
    elif "namespaceSelector" not in peer and _is_all(peer, "podSelector"):
        chosen = [each for each in others if {*each} == {"podSelector"}]
        if any(not _is_all(each, "podSelector") for each in chosen):
            return "every pod of its namespace, beside items that choose some of them"
    return None


def _is_everybody(peer: "Mapping[str, Json]") -> bool:
    return _is_all(peer, "namespaceSelector") and _is_all(peer, "podSelector")


def _is_all(peer: "Mapping[str, Json]", key: str) -> bool:
    """Tell whether a selector is empty; one that is not there selects nothing by itself."""
    selector = mapping(peer.get(key))
    return selector is not None and not any(not is_absent(each) for each in selector.values())


def split_peers(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a namespace and a pod of it that stand in two items, of which either is enough.

    Kubernetes, "Network Policies": a podSelector without a namespaceSelector in its own item takes
    pods of the policy's namespace.
    """
    for way, peers, _ in _ways(manifest):
        for index, value in enumerate(items(manifest.spec.get(way)) or []):
            listed = [
                mapping(each) or {} for each in items((mapping(value) or {}).get(peers)) or []
            ]
            spaces = [
                labels
                for each in listed
                if {*each} == {"namespaceSelector"}
                and (labels := _labels(each, "namespaceSelector"))
            ]
            for place, each in enumerate(listed):
                own = _labels(each, "podSelector") if {*each} == {"podSelector"} else {}
                system = any("kube-system" in labels.values() for labels in spaces)
                if own.get("k8s-app") == "kube-dns" and manifest.namespace != "kube-system":
                    if not (system or not spaces):
                        continue
                    found = "pods of DNS in its own namespace, which has none"
                    found += ", and every pod of kube-system" if system else ""
                    path = ("spec", way, index, peers, place, "podSelector")
                    remedy = "write it below the same dash as namespaceSelector"
                    yield _warn(manifest, path, found, remedy)


def _labels(peer: "Mapping[str, Json]", key: str) -> "dict[str, Json]":
    return mapping((mapping(peer.get(key)) or {}).get("matchLabels")) or {}


def denials(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a policy that is called a denial and admits, and of rules that nothing applies.

    Kubernetes, "Network Policies": a rule `{}` allows all; policyTypes says which directions
    count, by default Ingress, and Egress where rules for it are there.
    """
    types = {text(each) for each in items(manifest.spec.get("policyTypes")) or []}
    denies = manifest.kind == "NetworkPolicy" and _DENIES.search(manifest.name or "") is not None
    for way, peers, type_ in _ways(manifest):
        rules = items(manifest.spec.get(way)) or []
        for index, value in enumerate(rules):
            rule = mapping(value)
            free = rule is not None and not items(rule.get(peers)) and not items(rule.get("ports"))
            if free and denies and len(rules) == 1:
                found = f"{shown(manifest.name)} allows all {way} by an empty rule"
                remedy = f"remove {way}: without rules everything is denied"
                yield _warn(manifest, ("spec", way, index), found, remedy)
        if rules and types and type_ not in types:
            found = f"rules that count for nothing: policyTypes lacks {type_}"
            yield _warn(manifest, ("spec", way), found, f"add {type_} to policyTypes")
        applied = type_ in types if types else way == "ingress" or way in manifest.spec
        if denies and not applied and re.search(rf"(^|[-_.]){way}([-_.]|$)", manifest.name or ""):
            found = f"{shown(manifest.name)} leaves {way} free: policyTypes lacks {type_}"
            yield _warn(manifest, ("spec", "policyTypes"), found, f"add {type_}")


def link_local(manifest: Manifest) -> Iterator[Finding]:
    """Warn of an address on the node at which nothing answers, or not what the policy is for.

    EKS User Guide, "Set up the Amazon EKS Pod Identity Agent": 169.254.170.23 and fd00:ec2::23,
    port 80; 169.254.170.2 is that of Amazon ECS.
    """
    for index, value in enumerate(
        items(manifest.spec.get("egress")) or [] if manifest.kind == "NetworkPolicy" else []
    ):
        rule = mapping(value) or {}
        blocks = [
            mapping((mapping(each) or {}).get("ipBlock")) or {}
            for each in items(rule.get("to")) or []
        ]
        mine = _OF_ROLES.search(manifest.name or "") is not None
        addresses = [_single(each, _WHOLE if mine else _LINK_LOCAL) for each in blocks]
        for place, address in enumerate(addresses):
            path = ("spec", "egress", index, "to", place, "ipBlock", "cidr")
            if address is None:
                continue
            if address == _ECS or address not in _ANSWER:
                found = f"{address} is Amazon ECS'" if address == _ECS else f"{address}"
                found += ": nothing answers there on a node of EKS"
                remedy = f"the agent of EKS Pod Identity is at {_AGENT}/32 and {_AGENT_V6}/128"
                yield _warn(manifest, path, found, remedy)
            elif mine and address in _METADATA and not {_AGENT, _AGENT_V6} & {*addresses}:
                found = f"{address} is the node's own metadata, not the agent of EKS Pod Identity"
                yield _warn(manifest, path, found, f"write {_AGENT}/32 and {_AGENT_V6}/128")
            elif address in {_AGENT, _AGENT_V6} and not _admits(rule, _AGENT_PORT):
                found = f"no port {_AGENT_PORT}, on which the agent of EKS Pod Identity answers"
                ports = ("spec", "egress", index, "ports")
                yield _warn(manifest, ports, found, f"admit TCP {_AGENT_PORT}")


def _single(block: "Mapping[str, Json]", own_v4: ipaddress.IPv4Network) -> str | None:
    """Return the one address of a block, if it is one of the node's own."""
    try:
        network = ipaddress.ip_network(text(block.get("cidr")) or "", strict=False)
    except ValueError:
        return None
    own = own_v4 if network.version == own_v4.version else _EC2_V6
    inside = network.network_address in own and network.num_addresses == 1
    return str(network.network_address) if inside else None


def _admits(rule: "Mapping[str, Json]", port: int) -> bool:
    ports = [mapping(each) or {} for each in items(rule.get("ports")) or []]
    if not ports:
        return True
    for each in ports:
        first, last = number(each.get("port")), number(each.get("endPort"))
        named = first is None
        if named or (first is not None and first <= port <= (last or first)):
            return each.get("protocol", "TCP") == "TCP"
    return False


def exceptions(manifest: Manifest) -> Iterator[Finding]:
    """Refuse an exception that is no part of its range.

    Kubernetes 1.35, pkg/apis/networking/validation: must be a strict subset of cidr.
    """
    for way, peers, _ in _ways(manifest):
        for index, value in enumerate(items(manifest.spec.get(way)) or []):
            for place, peer in enumerate(items((mapping(value) or {}).get(peers)) or []):
                block = mapping((mapping(peer) or {}).get("ipBlock")) or {}
                for number_, each in enumerate(items(block.get("except")) or []):
                    if _is_outside(text(block.get("cidr")) or "", text(each) or ""):
                        path = ("spec", way, index, peers, place, "ipBlock", "except", number_)
                        found = f"{shown(each)} is no part of {block['cidr']}"
                        found += ": the API server refuses the policy"
                        remedy = "name a smaller range inside it"
                        yield manifest.find(Code.WRONG_VALUE, path, found, remedy)


def _is_outside(whole: str, part: str) -> bool:
    if is_placeholder(whole) or is_placeholder(part):
        return False
    try:
        outer = ipaddress.ip_network(whole, strict=False)
        inner = ipaddress.ip_network(part, strict=False)
    except ValueError:
        return False
    if isinstance(outer, ipaddress.IPv4Network) and isinstance(inner, ipaddress.IPv4Network):
        return not inner.subnet_of(outer) or inner == outer
    if isinstance(outer, ipaddress.IPv6Network) and isinstance(inner, ipaddress.IPv6Network):
        return not inner.subnet_of(outer) or inner == outer
    return True


def _ways(manifest: Manifest) -> "tuple[tuple[str, str, str], ...]":
    return _WAYS if manifest.kind == "NetworkPolicy" else ()


def _warn(manifest: Manifest, path: Path, found: str, remedy: str) -> Finding:
    return manifest.find(Code.POLICY_MEANING, path, found, remedy, Level.WARNING)
