"""Rules over network policies and the names that pods look up."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, may_share
from megatron_eks.rules.values import items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_DNS = 53
_OF_A_JOB = "megatron-eks/job"
_SERVERS = ("kube-dns", "node-local-dns")


def names_out_of_reach(together: ManifestSet) -> Iterator[Found]:
    """Warn of pods that may reach other pods, and no DNS server that tells their addresses.

    Kubernetes, "Network Policies" and "DNS for Services and Pods": CoreDNS runs in kube-system,
    which a podSelector alone does not reach.
    """
    policies = [each for each in together.of("NetworkPolicy") if _limits_egress(each)]
    for policy in policies:
        rules = items(policy.spec.get("egress"))
        # A job's own policy stands in its file; that of DNS is the platform's, in another one.
        if not rules or policy.namespace == "kube-system" or _OF_A_JOB in policy.labels:
            continue
        beside = [each for each in policies if may_share(policy, each)]
        bodies = [mapping(rule) or {} for rule in rules]
        for_pods = all(_is_for_pods(each) for each in bodies)
        by_name = any(_is_for_pods(each) or _is_for_anywhere(each) for each in bodies)
        if by_name and not any(
            _admits_dns(each) and _may_select_the_same(policy, each) for each in beside
        ):
            found = "egress to pods only" if for_pods else "egress to a part"
            found += ", and nothing admits DNS: no name is found"
            remedy = "admit port 53, UDP and TCP, to kube-system"
            finding = policy.find(
                Code.RANKS_CUT_OFF, ("spec", "egress"), found, remedy, Level.WARNING
            )
            yield policy, finding


def dns_labels(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a policy that admits DNS to pods by a label that EKS's CoreDNS does not have.

    EKS User Guide, "Manage CoreDNS for DNS in Amazon EKS clusters": its label is k8s-app: kube-dns.
    """
    if manifest.kind != "NetworkPolicy":
        return
    for index, value in enumerate(items(manifest.spec.get("egress")) or []):
        rule = mapping(value) or {}
        if not items(rule.get("ports")) or not _has_dns_port(rule):
            continue
        for place, each in enumerate(items(rule.get("to")) or []):
            peer = mapping(each) or {}
            labels = mapping((mapping(peer.get("podSelector")) or {}).get("matchLabels")) or {}
            name = labels.get("k8s-app")
            if "namespaceSelector" in peer and name is not None and name not in _SERVERS:
                found = f"k8s-app: {shown(name)}, and CoreDNS has kube-dns: no name is found"
                path = ("spec", "egress", index, "to", place, "podSelector")
                remedy = "write k8s-app: kube-dns"
                yield manifest.find(Code.RANKS_CUT_OFF, path, found, remedy, Level.WARNING)


def _limits_egress(policy: Manifest) -> bool:
    types = items(policy.spec.get("policyTypes"))
    return types is None or "Egress" in types or (not types and "egress" in policy.spec)


def _is_for_pods(rule: Mapping[str, Json]) -> bool:
    """Tell whether a rule admits pods of the policy's own namespace only."""
    peers = [mapping(each) or {} for each in items(rule.get("to")) or []]
    return bool(peers) and all({*each} == {"podSelector"} for each in peers)


def _is_for_anywhere(rule: Mapping[str, Json]) -> bool:
    """Tell whether a rule admits what is reached by name: any address, or pods elsewhere."""
    peers = [mapping(each) or {} for each in items(rule.get("to")) or []]
    blocks = [mapping(each.get("ipBlock")) or {} for each in peers]
    wide = any(text(each.get("cidr")) in {"0.0.0.0/0", "::/0"} for each in blocks)
    return not peers or wide or any("namespaceSelector" in each for each in peers)


def _admits_dns(policy: Manifest) -> bool:
    rules = items(policy.spec.get("egress"))
    for each in rules or []:
        rule = mapping(each)
        if rule is None or (not _is_for_pods(rule) and _has_dns_port(rule)):
            return True
    return rules is None


def _has_dns_port(rule: Mapping[str, Json]) -> bool:
    ports = items(rule.get("ports"))
    if not ports:
        return True
    for each in ports:
        first = (mapping(each) or {}).get("port")
        port, last = number(first), number((mapping(each) or {}).get("endPort"))
        # A name may mean it, and so does a rule without a port.
        if port is None or port <= _DNS <= (last or port):
            return True
    return False


def _may_select_the_same(policy: Manifest, other: Manifest) -> bool:
    mine, theirs = (
        mapping((mapping(each.spec.get("podSelector")) or {}).get("matchLabels")) or {}
        for each in (policy, other)
    )
    return all(mine.get(key, value) == value for key, value in theirs.items())
