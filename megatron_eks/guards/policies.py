"""Guards of network policies: what jobs and the training operator must reach, and nobody else.

Kubernetes, "Network Policies": pods that no policy selects take and make every connection; what one
selects needs a rule on both sides.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.guards.manifests import Manifests, Object, manifest_guard
from megatron_eks.guards.values import Value

_METADATA_SERVICE, _IDENTITY = "169.254.169.254", "169.254.170.23"
_AWS = "52.94.0.1"  # an address outside the cluster
_PEERS = {"ingress": "from", "egress": "to"}
_RANKS: Json = {"matchLabels": {"app": "megatron-training"}}


class _Way(NamedTuple):
    port: int
    protocol: str
    leads: Callable[[Value], bool]
    """Tells of a rule's peers whether they are the right ones."""
    peers: str
    lost: str


def _to(address: str, peers: Value) -> bool:
    blocks = [peer["ipBlock"] for peer in peers]
    blocks = [each for each in blocks if _is_in(address, [each["cidr"].text])]
    return not all(_is_in(address, each["except"].texts) for each in blocks)


def _is_in(address: str, ranges: list[str]) -> bool:
    try:
        return any(ip_address(address) in ip_network(each) for each in ranges)
    except ValueError:
        return False


def _to_ranges(least: int, peers: Value) -> bool:
    return len({peer["ipBlock"]["cidr"].text for peer in peers} - {""}) >= least


def _to_peer(right: list[Json], peers: Value) -> bool:
    return any(each.raw in right for each in peers)


_SYSTEM: Json = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
_SERVER: Json = {"matchLabels": {"k8s-app": "kube-dns"}}
_DNS: list[Json] = [
    {"namespaceSelector": each, "podSelector": _SERVER} for each in (_SYSTEM, dict[str, Json]())
]
_NAMES = [
    _Way(53, each, partial(_to_peer, _DNS), "k8s-app: kube-dns of kube-system", "no name resolves")
    for each in ("UDP", "TCP")
]
_OF_JOBS = (
    *_NAMES,
    # EKS User Guide, "Understand how EKS Pod Identity works": the agent answers at this address.
    _Way(80, "TCP", partial(_to, _IDENTITY), f"{_IDENTITY}/32", "no credentials, S3 is denied"),
    _Way(443, "TCP", partial(_to, _AWS), "0.0.0.0/0 except 169.254.0.0/16", "S3 times out"),
)
_TO_API = _Way(443, "TCP", partial(_to_ranges, 2), "ranges of VPC and Services", "no job gets pods")
# EKS User Guide, "Amazon EKS networking requirements": it is called from addresses of the VPC.
_WEBHOOK = _Way(9443, "TCP", partial(_to_ranges, 1), "the VPC's range", "all jobs are refused")


@manifest_guard
def default_deny(manifests: Manifests) -> Iterator[Finding]:
    """Deny first in each namespace: an allowance limits nothing where all is allowed."""
    shared = [each for each in manifests.of("NetworkPolicy") if _everyone(each)]
    spaces = {each.namespace: each["metadata"]["namespace"] for each in shared}
    named = {each.name: each["metadata"]["name"] for each in manifests.of("Namespace")}
    for space, place in {**spaces, **named}.items() if shared else ():
        specs = [each["spec"] for each in shared if each.namespace == space]
        closed = [e for e in specs if sorted(e["policyTypes"].texts) == ["Egress", "Ingress"]]
        if all(each["egress"].raw or each["ingress"].raw for each in closed):
            found = f"no policy denies all traffic in {space}: its pods reach everything"
            remedy = "add default-deny: podSelector {}, policyTypes Ingress and Egress, no rules"
            yield place.finding(Code.POLICY_MEANING, found, remedy)


@manifest_guard
def forms(manifests: Manifests) -> Iterator[Finding]:
    """Limit a policy's rules to peers and ports that it names, without the node's credentials."""
    for policy in manifests.of("NetworkPolicy"):
        types = policy["spec"]["policyTypes"]
        for key, peers in _PEERS.items():
            if policy["spec"][key].raw and types.texts.count(key.title()) != 1:
                found = f"policyTypes lacks {key.title()}, or has it twice: no rule is applied"
                yield types.finding(Code.POLICY_MEANING, found, f"list {key.title()} once")
            for rule in policy["spec"][key]:
                for place, found, remedy in _too_wide(rule, rule[peers]):
                    level = Level.WARNING if place.name.endswith("Selector") else Level.ERROR
                    yield place.finding(Code.POLICY_MEANING, found, remedy, level)


def _too_wide(rule: Value, peers: Value) -> Iterator[tuple[Value, str, str]]:
    if not peers.raw:
        found = f"a rule without {peers.name!r} admits every address, {_METADATA_SERVICE} too"
        yield peers, found, "name the peers"
    if not rule["ports"].raw and not all("job-name" in str(each.raw) for each in peers):
        yield rule["ports"], "no ports: the rule admits all of them", "name port and protocol"
    for port in rule["ports"]:
        if not port["port"] or not port["protocol"]:
            found = "no port, or no protocol: every port, or TCP alone, passes"
            yield port, found, "write both, such as port: 443 and protocol: TCP"
    for peer in peers:
        spaces, pods = peer["namespaceSelector"], peer["podSelector"]
        if not peer["ipBlock"] and (spaces.raw == {} or not pods["matchLabels"].raw):
            place = spaces if spaces.raw == {} else pods
            yield place, "more pods than one kind are meant", "name them by their labels"
    if peers.name == "to" and _to(_METADATA_SERVICE, peers):
        found = f"the ranges have {_METADATA_SERVICE}, where the node's credentials are"
        yield peers, found, "except 169.254.0.0/16"


@manifest_guard
def ways(manifests: Manifests) -> Iterator[Finding]:
    """Let jobs reach names, credentials and HTTPS, the operator the API server, and ranks etcd."""
    policies = manifests.of("NetworkPolicy")
    for deny in filter(_closes, policies):
        shared = [e for e in policies if e.namespace == deny.namespace and _everyone(e)]
        jobs = [e for e in manifests.of("PyTorchJob") if e.namespace == deny.namespace]
        if jobs or any(each["spec"]["egress"].raw for each in shared):
            yield from _blocked([deny, *shared], "egress", _OF_JOBS)
    for pod in manifests.pods if policies else ():
        operator = "--enable-scheme" in str(pod.main["args"].raw)
        etcd_server = pod.main.at("command 0").text == "etcd"
        own = manifests.policies_of(pod) if operator or etcd_server else []
        own.sort(key=_everyone)
        if operator and any(map(_closes, own)):
            yield from _blocked(own, "egress", [*_NAMES, _TO_API])
            yield from _blocked(own, "ingress", [_WEBHOOK])
        if etcd_server:
            ranks = [e for e in policies if e["spec"]["podSelector"].raw == _RANKS]
            etcd: Json = {"matchLabels": pod.metadata["labels"].raw}
            for key, chosen, peer in (("ingress", own, _RANKS), ("egress", ranks, etcd)):
                leads = partial(_to_peer, [{"podSelector": peer}])
                way = _Way(2379, "TCP", leads, f"pods of {peer}", "ranks never meet")
                yield from _blocked([*chosen, pod.owner], key, [way])


@manifest_guard
def ways_of_ranks(manifests: Manifests) -> Iterator[Finding]:
    """Let ranks of a job reach each other on every port: torch and NCCL choose theirs at random."""
    policies = [e for e in manifests.of("NetworkPolicy") if "job-name" in str(e["spec"].raw)]
    for policy in policies:
        for key, peers in _PEERS.items():
            rules = [each for each in policy["spec"][key] if not each["ports"].raw]
            own: list[Json] = [{"podSelector": policy["spec"]["podSelector"].raw}]
            if _everyone(policy) or not any(_to_peer(own, each[peers]) for each in rules):
                found = f"no {key} between the ranks on all ports: the rendezvous times out"
                remedy = f"allow {key} {peers} the labels of podSelector, without ports"
                yield policy["spec"][key].finding(Code.RANKS_CUT_OFF, found, remedy)
    for pod in manifests.pods:
        job = pod.owner
        counts = [e["replicas"] for _, e in job["spec"]["pytorchReplicaSpecs"].items()]
        counts += [job["spec"]["parallelism"]] if job["spec"]["completionMode"] else []
        met = any("job-name" in str(e["spec"].raw) for e in manifests.policies_of(pod))
        if sum(e.number or 0 for e in counts) > 1 and pod.asks("nvidia.com/gpu") and not met:
            found = f"no policy lets the ranks of {job.name} reach each other: none ever starts"
            remedy = "add one from and to pods with the label job-name of the job, without ports"
            yield job["metadata"]["name"].finding(Code.RANKS_CUT_OFF, found, remedy)


def _everyone(policy: Object) -> bool:
    """Tell whether a policy holds for every pod of its namespace."""
    return not policy["spec"]["podSelector"].raw


def _closes(policy: Object) -> bool:
    spec = policy["spec"]
    return _everyone(policy) and "Egress" in spec["policyTypes"].texts and not spec["egress"].raw


def _blocked(policies: Sequence[Object], key: str, ways: Sequence[_Way]) -> Iterator[Finding]:
    """Report ways that no rule opens, at the rule that comes nearest."""
    rules = [rule for each in policies for rule in each["spec"][key]]
    for way in ways:
        fits = [_admits(rule, way) + way.leads(rule[_PEERS[key]]) for rule in rules]
        if 2 not in fits:  # noqa: PLR2004 -- port and peer
            place = rules[fits.index(1)] if 1 in fits else policies[0]["spec"]
            words = f"{key} {_PEERS[key]} {way.peers} on {way.protocol} port {way.port}"
            found, remedy = f"no {words}: {way.lost}", f"allow {words}"
            yield place.finding(Code.RANKS_CUT_OFF, found, remedy)


def _admits(rule: Value, way: _Way) -> bool:
    wanted = ((way.port, way.protocol), (None, way.protocol))
    ports = [(each["port"].raw, each["protocol"].text or "TCP") for each in rule["ports"]]
    return not ports or any(each in wanted for each in ports)
