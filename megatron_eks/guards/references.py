"""Guards of what objects name, and of network policies: what their pods must reach.

Kubernetes, "Network Policies": pods that no policy selects take and make every connection; what one
selects needs a rule on both sides.
"""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from megatron_eks.catalog.workloads import CONTROLLED, JOB_LABELS, WORKLOADS
from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.config.outputs import PLACEHOLDER_HOST, PREVIEW_ANNOTATION
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import CLUSTER_MARK, Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.values import NO, Found, Value, report, warn

_BUILT_IN = {"default", "kube-system", "kube-public", "kube-node-lease"}
_BUILT_IN |= {"system-cluster-critical", "system-node-critical"}
_APP = "app.kubernetes.io/name"
_NAMESPACED = "ConfigMap DaemonSet Deployment Job JobSet NetworkPolicy PersistentVolumeClaim "
_NAMESPACED += "PyTorchJob ResourceQuota Role RoleBinding Secret Service ServiceAccount TrainJob "
_NAMESPACED += "TrainingRuntime"
_PREVIEW, _WORDS = "`meks apply` takes a placeholder for a real address", {"args", "command"}
_METADATA_SERVICE, _IDENTITY = "169.254.169.254", "169.254.170.23"
# What all pods of a namespace may reach besides names: S3 and their credentials.
_FOR_ALL = ("", "0.0.0.0/0")
_AWS = "52.94.0.1"  # an address outside the cluster
_PEERS = {"ingress": "from", "egress": "to"}


@manifest_guard
def named_objects(manifests: Manifests) -> Found:
    """Name what is there: a pod waits for its volumes, and is refused without its account."""
    for pod in manifests.pods:
        space, own = pod.owner.namespace, f"{pod.owner.name}-"
        places = [("ServiceAccount", pod.spec["serviceAccountName"])]
        places += [("PriorityClass", pod.spec["priorityClassName"])]
        for volume in pod.spec["volumes"]:
            places += [("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])]
            if volume["configMap"]["optional"].raw is not True:
                places += [("ConfigMap", volume["configMap"]["name"])]
        for kind, value in places:
            # A job's file alone says nothing about what the platform holds.
            known = [e.name for e in manifests.of(kind) if e.namespace in {"", space}]
            made = manifests.named("Namespace", space)  # a job elsewhere is said so
            beside = bool(known or (kind == "ServiceAccount" and made))
            beside = beside or (kind == "ConfigMap" and value.text.startswith(own))
            missing = value and beside and value.text not in {*known, *_BUILT_IN}
            near = get_close_matches(value.text, known, 1) or known
            found = f"no {kind} {value.text!r}: the pods are not created, or wait for it"
            remedy = f"use {' or '.join(near)}" if near else f"add the {kind}"
            yield from report(Rule.MISSING_OBJECT, missing, value, found, remedy)
    for each in manifests.of("ServiceAccount"):
        token, why = each["automountServiceAccountToken"], "its pods get a token they do not need"
        yield from token.must_be(Rule.NEEDLESS_PRIVILEGE, NO, why=why, warns=True)


@manifest_guard
def objects(manifests: Manifests) -> Found:
    """Put objects into a namespace that is there and one cluster, and write nothing twice."""
    marks = [each.body.at(CLUSTER_MARK) for each in manifests.objects if each.kind != "Pod"]
    usual = Counter(each.text for each in marks if each).most_common(1)
    for mark, (name, _) in ((mark, each) for each in usual for mark in marks):
        yield from mark.must_be(Code.OWNED_BY_ANOTHER, name, why="`meks apply` refuses it")
    made = [each.name for each in manifests.of("Namespace")]
    names = Counter(_identity(each) for each in manifests.objects)
    for each in manifests.objects:
        again = names[_identity(each)] > 1
        found = f"{each.kind} {each.name} stands here twice: the last one applied counts"
        row = (again, each["metadata"]["name"], found, "give one another name, or remove it")
        yield from report(Rule.DUPLICATE_IN_POD, *row)
        place = each["metadata"]["namespace"]
        known = {*made, *(() if each.kind in WORKLOADS else _BUILT_IN)}
        known = known if len(made) > 1 else {place.text}  # the operator's file has one
        lost = (place or each.kind in _NAMESPACED.split()) and place.text not in known - {""}
        found = f"no namespace {place.text!r} of these files: it is refused, or goes to another"
        yield from report(Rule.MISSING_OBJECT, lost, place, found, f"name one of {made}")
        text = str(each.body.raw) if each.kind in {"PersistentVolume", *WORKLOADS} else ""
        runtime = manifests.named("TrainingRuntime", each.name, each.namespace)
        text += str(runtime.body.raw) if runtime and each.kind == "TrainJob" else ""
        if PLACEHOLDER_HOST in text or "fs-preview" in text:  # decision 0005
            mark, why = each["metadata"]["annotations"][PREVIEW_ANNOTATION], _PREVIEW
            yield from mark.must_be(Code.PREVIEW_REFUSED, "true", why=why)
        for value in (part for part in each.parts if not _WORDS & {*part.path}):
            elements = [repr(element.raw) for element in value]
            found = f"{value.name} has an element twice: it is refused, or was meant to differ"
            if len({*elements}) < len(elements):
                yield value.finding(Rule.DUPLICATE_IN_POD, found, "keep one, or correct it")


def _identity(each: Object) -> tuple[str, ...]:
    return each["apiVersion"].text, each.kind, each.namespace, each.name


@manifest_guard
def selectors(manifests: Manifests) -> Found:
    """Let workloads and Services find pods, and ports that they have (Kubernetes, "Service")."""
    for each in manifests.of("DaemonSet", "Deployment", "Service"):
        selector, service = each["spec"]["selector"], each.kind == "Service"
        pods = [e for e in manifests.pods if e.owner.namespace == each.namespace]
        pods = pods if service else each.pods
        wanted = selector if service else selector["matchLabels"]
        pairs = {(key, str(value.raw)) for key, value in wanted.items()}
        chosen = [e for e in pods if pairs and pairs <= {(k, str(v)) for k, v in e.labels.items()}]
        lost, found = manifests.pods and not chosen, "no pod has these labels: it selects nothing"
        yield from report(Rule.SELECTOR, lost, wanted, found, "use labels that the pods have")
        app, own = [e.labels.get(_APP) for e in chosen], each.labels[_APP]
        why = "commands that look for this label miss it"
        yield from own.must_be(Rule.POD_LABEL, *app, why=why, warns=True) if app else ()
        known = [p for pod in chosen for c in pod.containers for p in c["ports"]]
        ports = [port[key].raw for port in known for key in ("name", "containerPort")]
        for port in each["spec"]["ports"]:
            target = port["targetPort"] or port["port"]
            wrong, found = known and target.raw not in ports, f"pods have no port {target.raw!r}"
            yield from report(Rule.SERVICE, wrong, target, found, f"use one of {ports}")


class _Way(NamedTuple):
    port: int
    protocol: str
    to: list[Json] | int | str
    """The right peers, at least so many ranges, or an address that is in one."""
    peers: str
    lost: str


def _leads(way: _Way, peers: Value) -> bool:
    if isinstance(way.to, list):
        return any(each.raw in way.to for each in peers)
    if isinstance(way.to, int):
        return len({each["ipBlock"]["cidr"].text for each in peers} - {""}) >= way.to
    return _reaches(way.to, peers)


def _reaches(address: str, peers: Value) -> bool:
    keys = ("cidr", "except")
    found = ([_is_in(address, each["ipBlock"][key].texts) for key in keys] for each in peers)
    return [True, False] in found


def _is_in(address: str, ranges: list[str]) -> bool:
    try:
        return any(ip_address(address) in ip_network(each) for each in ranges)
    except ValueError:
        return False


_SYSTEM: Json = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
_SERVER: Json = {"matchLabels": {"k8s-app": "kube-dns"}}
_DNS: list[Json] = [{"namespaceSelector": e, "podSelector": _SERVER} for e in (_SYSTEM, {})]
_NAMES = [
    _Way(53, each, _DNS, "k8s-app: kube-dns of kube-system", "no name resolves")
    for each in ("UDP", "TCP")
]
# EKS User Guide, "Understand how EKS Pod Identity works" and "Amazon EKS networking requirements":
# an agent answers at this address, and the API server calls webhooks from addresses of the VPC.
_OF_JOBS = (
    *_NAMES,
    _Way(80, "TCP", _IDENTITY, f"{_IDENTITY}/32", "no credentials, S3 is denied"),
    _Way(443, "TCP", _AWS, "0.0.0.0/0 except 169.254.0.0/16", "S3 times out"),
)
_TO_API = _Way(443, "TCP", 2, "ranges of VPC and Services", "it sees no job")
_RANKS: dict[str, Json] = {"podSelector": {"matchLabels": {"app": "megatron-training"}}}
_TO_ETCD = _Way(2379, "TCP", [{"podSelector": {"matchLabels": {"app": "etcd"}}}], "etcd", "no rank")
_MEETING = _Way(2379, "TCP", [_RANKS], "pods of jobs", "ranks never meet")


@manifest_guard
def forms(manifests: Manifests) -> Found:
    """Deny first, then allow peers and ports by name, without the node's credentials."""
    code, policies = Rule.POLICY_MEANING, manifests.of("NetworkPolicy")
    for policy in policies:
        types = policy["spec"]["policyTypes"]
        for key in _PEERS:
            missing = policy["spec"][key].raw and types.texts.count(key.title()) != 1
            found = f"policyTypes lacks {key.title()}, or has it twice: no rule is applied"
            yield from report(code, missing, types, found, f"list {key.title()} once")
            for rule in policy["spec"][key]:
                yield from _too_wide(rule, rule[_PEERS[key]])
    shared = [each for each in policies if _everyone(each)]
    closed = {e.namespace for e in shared if _closes(e, "Egress") and _closes(e, "Ingress")}
    found = "it holds for every pod of the namespace, not for those that need it alone"
    for each in shared:
        ways = [e.text for e in each["spec"].every("egress * to * ipBlock cidr")]
        own = ways and not any(e in _FOR_ALL or e.startswith("169.254.") for e in ways)
        wide = each["spec"]["ingress"].raw or own
        yield from warn(code, wide, each["spec"]["podSelector"], found, "name the pods")
    spaces = {each.namespace: each["metadata"]["namespace"] for each in shared}
    spaces |= {e.name: e["metadata"]["name"] for e in manifests.of("Namespace") if shared}
    for space, place in spaces.items():
        found = f"no policy denies all traffic in {space}: its pods reach everything"
        remedy = "add default-deny: podSelector {}, policyTypes Ingress and Egress, no rules"
        yield from report(code, space not in closed, place, found, remedy)


def _too_wide(rule: Value, peers: Value) -> Found:
    wide = partial(report, Rule.POLICY_MEANING)
    found = f"a rule without {peers.name!r} admits every address, even {_METADATA_SERVICE}"
    yield from wide(not peers.raw, peers, found, "name the peers")
    every = not rule["ports"].raw and not all(_of_one_job(each) for each in peers)
    found = "no ports: the rule admits all of them"
    yield from wide(every, rule["ports"], found, "name port and protocol")
    found = f"the ranges include {_METADATA_SERVICE}, where the node's credentials are"
    remedy = "except 169.254.0.0/16, or remove the range"
    yield from wide(_reaches(_METADATA_SERVICE, peers), peers, found, remedy)
    for port in rule["ports"]:
        found = "no port, or no protocol: every port, or TCP alone, passes"
        wrong = not port["port"] or not port["protocol"]
        yield from wide(wrong, port, found, "write both, such as port: 443 and protocol: TCP")
    for peer in peers:
        spaces, pods = peer["namespaceSelector"], peer["podSelector"]
        named = [value.raw for each in (spaces, pods) for _, value in each.items()]
        wrong = not peer["ipBlock"] and (spaces.raw == {} or not any(named))
        place, found = spaces if spaces.raw == {} else pods, "it selects more than one kind of pod"
        yield from wide(wrong, place, found, "name them by their labels")


@manifest_guard
def ways(manifests: Manifests) -> Found:
    """Let jobs reach names, credentials, HTTPS, etcd and ranks; the operator the API server."""
    policies = manifests.of("NetworkPolicy")
    spaces = {each.namespace for each in manifests.of(*CONTROLLED)}
    for deny in (each for each in policies if _closes(each, "Egress")):
        shared = [e for e in policies if e.namespace == deny.namespace and _everyone(e)]
        if deny.namespace in spaces or any(each["spec"]["egress"].raw for each in shared):
            yield from _blocked([deny, *shared], "egress", _OF_JOBS)
    # On every port, for torch and NCCL choose theirs at random.
    for policy in (each for each in policies if _of_one_job(each["spec"])):
        peer: Json = {"podSelector": policy["spec"]["podSelector"].raw}
        way = _Way(0, "", [peer], "the labels of podSelector", "ranks never reach each other")
        yield from (found for key in _PEERS for found in _blocked([policy], key, [way]))
    own = [e for e in policies if e["spec"]["podSelector"].raw == _RANKS["podSelector"]]
    # Others let in who asks for the ranks' metrics, or lead to what a user's jobs need.
    out = [e for e in own if "Egress" in e["spec"]["policyTypes"].texts]
    deployed = [e for e in manifests.of("Deployment") if e.name == "etcd"]
    out = [e for e in out if re.search("etcd|2379", str(e["spec"].raw))] or out * len(deployed)
    yield from (found for each in out for found in _blocked([each], "egress", [_TO_ETCD]))
    for pod in manifests.pods:
        yield from _ways_of(pod, sorted(manifests.policies_of(pod), key=_everyone))


def _of_one_job(place: Value) -> bool:
    return any(label in str(place.raw) for label in (*JOB_LABELS, "job-name"))


def _ways_of(pod: Pod, own: list[Object]) -> Found:
    ranks = pod.owner.wanted if pod.of_job else 1
    near = any(_of_one_job(each["spec"]) for each in own)  # others let in who asks for metrics
    alone = ranks > 1 and pod.asks("nvidia.com/gpu") and not near
    found = f"no policy lets the ranks of {pod.owner.name} reach each other: none ever starts"
    remedy = "add one from and to pods with a label of the job's name, without ports"
    yield from report(Rule.RANKS_CUT_OFF, alone, pod.owner["metadata"]["name"], found, remedy)
    words, scales = str(pod.main["args"].raw), "scaling" in str(pod.main["command"].raw)
    serves = "--enable-scheme" in words or pod.main.at("ports name=webhook")
    for needed, key, ways in (
        (serves or "--namespace" in words, "egress", [_TO_API]),
        (serves or scales, "egress", _NAMES),
        (serves, "ingress", [_Way(9443, "TCP", 1, "the VPC's range", "all jobs are refused")]),
        (pod.main.at("command 0").text == "etcd", "ingress", [_MEETING]),
    ):
        yield from _blocked(own, key, ways) if own and needed else ()
    out = [e.raw for policy in own for e in policy["spec"].every("egress * to * ipBlock cidr")]
    inward = [e for p in own for e in p["spec"].every("ingress * from * ipBlock cidr")]
    for each in inward if serves else ():
        wrong, found = each.raw not in out, "the API server calls from the VPC's addresses"
        found, remedy = f"{found}: all jobs are refused", "use the range that egress names"
        yield from report(Rule.RANKS_CUT_OFF, wrong, each, found, remedy)


def _everyone(policy: Object) -> bool:
    return not policy["spec"]["podSelector"].raw


def _closes(policy: Object, kind: str) -> bool:
    rules = policy["spec"][kind.lower()].raw
    return _everyone(policy) and kind in policy["spec"]["policyTypes"].texts and not rules


def _blocked(policies: Sequence[Object], key: str, ways: Sequence[_Way]) -> Found:
    rules = [rule for each in policies for rule in each["spec"][key]]
    for way in ways:
        fits = [(_admits(rule, way), _leads(way, rule[_PEERS[key]])) for rule in rules]
        near = [rule for rule, fit in zip(rules, fits, strict=True) if any(fit)]
        place = near[0] if near else policies[0]["spec"]
        ports = f"{way.protocol} port {way.port}" if way.port else "all ports"
        words, lost = f"{key} {_PEERS[key]} {way.peers} on {ports}", not any(map(all, fits))
        found = f"no {words}: {way.lost}"
        yield from report(Rule.RANKS_CUT_OFF, lost, place, found, f"allow {words}")


def _admits(rule: Value, way: _Way) -> bool:
    wanted = ((way.port, way.protocol), (None, way.protocol))
    ports = [(each["port"].raw, each["protocol"].text or "TCP") for each in rule["ports"]]
    return not ports or any(each in wanted for each in ports)
