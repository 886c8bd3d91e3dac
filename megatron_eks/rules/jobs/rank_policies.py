"""Rules over network policies between the ranks of a job."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.config.load import Json
from megatron_eks.rules.jobs.operator_labels import outdated
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.objects.workload_set import chosen
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, text
from megatron_eks.rules.workloads import GPU, Manifest, Pod

# What operators label the pods of a job with, and nobody else's.
_OF_RANKS = ("training.kubeflow.org/", "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/")
# The default of the training operator, and of torchrun's --master-port.
_OF_RENDEZVOUS = (23456, 29500)
# Linux, ip-sysctl, ip_local_port_range: the ports that a program is given which asks for any.
_FIRST, _LAST = 32768, 60999


def ranks_cut_off(together: ManifestSet) -> Iterator[Found]:
    """Warn of network policies that keep the ranks of a job from each other.

    Kubernetes, "Network Policies": what selects a pod denies all that no policy admits. EFA
    passes by the policies; the rendezvous and NCCL's bootstrap do not.
    """
    for job in together.objects:
        trains = job.kind == "PyTorchJob" or any(pod.names(GPU) for pod in job.pods)
        ranks = sum(pod.replicas or 1 for pod in job.pods)
        if not job.is_job or not trains or job.namespace is None or ranks < 2:  # noqa: PLR2004 -- two ranks make a network
            continue
        for way, peers in (("Ingress", "from"), ("Egress", "to")):
            applied = _policies(job, way, together, surely=True)
            perhaps = _policies(job, way, together, surely=False)
            narrow = [
                (each, index, rule)
                for each in perhaps
                for index, rule in _admitting(each, way, peers, job)
            ]
            if applied and not any(_is_for_all_ports(rule) for _, _, rule in narrow):
                # What goes to addresses alone was not written for the ranks.
                meant = any(_names_pods(rule) or not _peers(rule) for _, _, rule in narrow)
                # One that was to admit them, by labels of another operator, is told itself.
                if not meant and _is_meant(job, way, together):
                    continue
                yield _few_ports(job, way, narrow) if meant else _cut_off(job, way, applied)
            elif applied:
                yield from _some_cut_off(job, way, peers, perhaps)


def _is_meant(job: Manifest, way: str, together: ManifestSet) -> bool:
    return any(
        outdated(each) is not None and _has_rules(each, way)
        for each in together.of("NetworkPolicy")
        if job.kind == "PyTorchJob" and each.namespace == job.namespace
    )


def _some_cut_off(job: Manifest, way: str, peers: str, policies: list[Manifest]) -> Iterator[Found]:
    """Find ranks of one kind that no policy admits to the others, or the others to them."""
    for pod in job.pods:
        others = [each for each in job.pods if each is not pod]
        mine = [each for each in policies if _takes(each, job, pod)]
        admitted = any(
            not _peers(rule) or any(_may_be(peer, job, others) for peer in _peers(rule))
            for each in mine
            for rule in map(_body, items(each.spec.get(way.lower())) or [])
        )
        helped = [each.title for each in policies if each not in mine and _has_rules(each, way)]
        if others and not admitted and helped:
            direction = "from" if peers == "from" else "to"
            found = f"no {way.lower()} {direction} the other ranks: {helped[0]} selects those alone"
            path = (*pod.path[1:-1], "metadata", "labels")
            remedy = "give all ranks the labels that it selects"
            yield job, job.find(Code.RANKS_CUT_OFF, path, found, remedy, Level.WARNING)


def _takes(policy: Manifest, job: Manifest, pod: Pod) -> bool:
    selector = mapping(policy.spec.get("podSelector"))
    return selector is None or chosen(selector, job, pod)


def _has_rules(policy: Manifest, way: str) -> bool:
    return bool(items(policy.spec.get(way.lower())))


def _body(value: Json) -> "dict[str, Json]":
    return mapping(value) or {}


def _peers(rule: Mapping[str, Json]) -> "list[dict[str, Json]]":
    return [_body(each) for key in ("from", "to") for each in items(rule.get(key)) or []]


def _cut_off(job: Manifest, way: str, applied: list[Manifest]) -> Found:
    names = ", ".join(each.title for each in applied)
    found = f"{names} lets no {way.lower()} pass between its ranks"
    remedy = "admit the pods with the same labels, on every port"
    return job, job.find(Code.RANKS_CUT_OFF, ("spec",), found, remedy, Level.WARNING)


def _few_ports(
    job: Manifest, way: str, narrow: "list[tuple[Manifest, int, dict[str, Json]]]"
) -> Found:
    """Report the ports that alone pass; NCCL and Gloo listen on any that are free."""
    # A policy that names pods was written for them; one with addresses admits them by the way.
    policy, index, _ = next((each for each in narrow if _names_pods(each[2])), narrow[0])
    passing = [
        _said(mapping(each) or {}) for _, _, rule in narrow for each in items(rule["ports"]) or []
    ]
    found = f"{', '.join(dict.fromkeys(passing))} alone between the ranks of {job.title}, and NCCL "
    found += "and Gloo listen on any free port"
    remedy = "leave ports out, or admit TCP 1024 to 65535"
    path = ("spec", way.lower(), index, "ports")
    return policy, policy.find(Code.RANKS_CUT_OFF, path, found, remedy, Level.WARNING)


def _names_pods(rule: Mapping[str, Json]) -> bool:
    listed = [*(items(rule.get("from")) or []), *(items(rule.get("to")) or [])]
    return any({*(mapping(each) or {})} == {"podSelector"} for each in listed)


def few_ports(together: ManifestSet) -> Iterator[Found]:
    """Warn of a policy that admits ranks to each other on few ports, where no job stands beside it.

    As `ranks_cut_off`: the port of the rendezvous is one of many that a run listens on. Pods are
    ranks by the labels of an operator, or by that port: 23456 of the training operator, and 29500
    of torchrun.
    """
    policies = together.of("NetworkPolicy")
    for policy in policies:
        selector = mapping(policy.spec.get("podSelector")) or {}
        if _has_job(policy, selector, together):
            continue
        by_label = _selects_ranks(selector)
        # Rules and policies add up, and any that may take these pods may be what admits the rest.
        near = [
            each
            for each in policies
            if each.namespace == policy.namespace
            and _may_overlap(each.spec.get("podSelector"), selector)
        ]
        for way, peers in (("Ingress", "from"), ("Egress", "to")):
            inside = [
                (each, index, rule)
                for each in near
                for index, value in enumerate(items(each.spec.get(way.lower())) or [])
                if (rule := _body(value)) and _may_admit(rule, policy, selector)
            ]
            own = [
                each
                for each in inside
                if each[0] is policy
                and _names(each[2].get(peers), selector)
                and (by_label or _meets(each[2]))
            ]
            if own and not any(_is_for_all_ports(rule) for _, _, rule in inside):
                index, rule = own[0][1:]
                said = ", ".join(_said(mapping(each) or {}) for each in items(rule["ports"]) or [])
                found = f"{said} alone between ranks, and NCCL and Gloo listen on any free port"
                path = ("spec", way.lower(), index, "ports")
                remedy = "leave ports out, or admit TCP 1024 to 65535"
                finding = policy.find(Code.RANKS_CUT_OFF, path, found, remedy, Level.WARNING)
                yield policy, finding


def _selects_ranks(selector: Mapping[str, Json]) -> bool:
    """Tell a selector of the pods that an operator of training jobs makes."""
    labels = mapping(selector.get("matchLabels")) or {}
    expressions = [mapping(each) or {} for each in items(selector.get("matchExpressions")) or []]
    keys = [*labels, *(text(each.get("key")) or "" for each in expressions)]
    return any(key.startswith(_OF_RANKS) for key in keys)


def _meets(rule: Mapping[str, Json]) -> bool:
    """Tell whether a rule admits the port at which ranks meet first."""
    ports = [mapping(each) or {} for each in items(rule.get("ports")) or []]
    return any(number(each.get("port")) in _OF_RENDEZVOUS for each in ports)


def _has_job(policy: Manifest, selector: Mapping[str, Json], together: ManifestSet) -> bool:
    return any(
        chosen(selector, job, pod)
        for job in together.objects
        if job.is_job and job.namespace == policy.namespace
        for pod in job.pods
    )


def _names(peers: Json, selector: "dict[str, Json]") -> bool:
    """Tell whether the peers of a rule are the selected pods, or all of their namespace."""
    listed = [mapping(each) or {} for each in items(peers) or []]
    return not listed or any(
        "podSelector" in each
        and (
            each["podSelector"] in (selector, {})
            or {} != _wanted(selector) == _wanted(each["podSelector"])
        )
        for each in listed
    )


def _may_admit(rule: Mapping[str, Json], policy: Manifest, selector: "dict[str, Json]") -> bool:
    """Tell whether a rule may admit pods of a selector; without peers it admits everybody."""
    peers = _peers(rule)
    return not peers or any(
        _may_overlap(each.get("podSelector"), selector) and _is_of(each, policy) for each in peers
    )


def _is_of(peer: Mapping[str, Json], policy: Manifest) -> bool:
    """Tell whether a peer may be in a policy's namespace."""
    spaces = mapping((mapping(peer.get("namespaceSelector")) or {}).get("matchLabels")) or {}
    space = text(spaces.get("kubernetes.io/metadata.name"))
    return (
        None in {space, policy.namespace}
        or is_placeholder(space or "")
        or (space == policy.namespace)
    )


def _may_overlap(one: Json, other: Json) -> bool:
    """Tell whether two selectors may take one pod: no label has to have two values."""
    first, second = _wanted(one), _wanted(other)
    return not any(first[key].isdisjoint(second[key]) for key in first.keys() & second.keys())


def _wanted(selector: Json) -> "dict[str, frozenset[str]]":
    """Return the values that a selector takes of each label, in whichever way it says so.

    Kubernetes, "Labels and Selectors": matchLabels is matchExpressions with In and one value.
    """
    body = _body(selector)
    wanted = {key: frozenset({str(each)}) for key, each in _body(body.get("matchLabels")).items()}
    for expression in map(_body, items(body.get("matchExpressions")) or []):
        key, values = text(expression.get("key")), items(expression.get("values")) or []
        if key is not None and expression.get("operator") == "In":
            wanted[key] = frozenset(map(str, values))
    return wanted


def _said(body: Mapping[str, Json]) -> str:
    protocol = text(body.get("protocol")) or "TCP"
    if is_absent(body.get("port")):
        return protocol
    last = f" to {body['endPort']}" if not is_absent(body.get("endPort")) else ""
    return f"{protocol} {body['port']}{last}"


def _policies(job: Manifest, way: str, together: ManifestSet, *, surely: bool) -> list[Manifest]:
    """Return the policies that surely, or perhaps, select a job's pods, in one direction."""
    found = []
    for policy in together.of("NetworkPolicy"):
        types = items(policy.spec.get("policyTypes")) or []
        by_default = way == "Ingress" or "egress" in policy.spec
        if not (way in types if types else by_default):
            continue
        selector = mapping(policy.spec.get("podSelector"))
        fits = [selector is None or chosen(selector, job, pod) for pod in job.pods]
        here = policy.namespace == job.namespace
        # Without a namespace, or with a selector that nobody can read, it may be meant.
        perhaps = (here and any(fits)) or policy.namespace is None
        if (here and all(fits) and selector is not None) if surely else perhaps:
            found.append(policy)
    return found


def _admitting(
    policy: Manifest, way: str, peers: str, job: Manifest
) -> "Iterator[tuple[int, dict[str, Json]]]":
    """Return the rules that admit a job's own pods, on whatever port."""
    for index, value in enumerate(items(policy.spec.get(way.lower())) or []):
        rule = mapping(value) or {}
        listed = [mapping(each) or {} for each in items(rule.get(peers)) or []]
        if not listed or any(_may_be(peer, job, job.pods) for peer in listed):
            yield index, rule


def _may_be(peer: Mapping[str, Json], job: Manifest, pods: list[Pod]) -> bool:
    selector = mapping(peer.get("podSelector"))
    spaces = mapping((mapping(peer.get("namespaceSelector")) or {}).get("matchLabels")) or {}
    space = text(spaces.get("kubernetes.io/metadata.name"))
    if space is not None and space != job.namespace and not is_placeholder(space):
        return False
    if "podSelector" not in peer or selector is None:
        return True
    return any(chosen(selector, job, pod) for pod in pods)


def _is_for_all_ports(rule: Mapping[str, Json]) -> bool:
    """Tell whether a rule lets pass the ports that a system hands out, by TCP."""
    ports = [mapping(each) or {} for each in items(rule.get("ports")) or []]
    return not ports or any(_is_wide(each) for each in ports)


def _is_wide(body: Mapping[str, Json]) -> bool:
    if any(is_placeholder(str(body.get(key))) for key in ("port", "endPort", "protocol")):
        return True
    if (text(body.get("protocol")) or "TCP") != "TCP":
        return False
    first, last = number(body.get("port")), number(body.get("endPort"))
    wide = first is not None and last is not None and first <= _FIRST and last >= _LAST
    return is_absent(body.get("port")) or wide
