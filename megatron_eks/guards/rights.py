"""Guards of what the controllers of jobs, and what keeps their ends, may do."""

from collections.abc import Mapping, Sequence

from megatron_eks.catalog import kueue
from megatron_eks.catalog.pins import TEAM_LABEL, UID_LABEL
from megatron_eks.catalog.workloads import CONTROLLED, WORKLOADS
from megatron_eks.config.load import Json
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.components import CONTROLLERS, NO_RECORD, OPERATOR, RECORDER, part_of
from megatron_eks.guards.manifests import Manifests, Pod, manifest_guard
from megatron_eks.guards.values import Found, Row, Value, report

_READ, _MAKE, _CHANGE = "get list watch", "get list watch create delete", "get list watch update"
_JOBS, _OWN, _CLUSTER = "the jobs' namespace", "its own namespace", "the cluster"
_ADMISSION, _HOOKS = "admissionregistration.k8s.io", "validatingwebhookconfigurations"
_MUTATING, _DEFINITION = "mutatingwebhookconfigurations", "CustomResourceDefinition"
_WITH_HOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", _DEFINITION)
_ELSEWHERE, _NO_START = "it watches another namespace, or may not", "it does not start"
_NO_END = "jobs never say how they end, or what they make has no owner"
_STRICT: Row = ("failurePolicy", ("Fail",), "without an answer, jobs pass unseen")
_ASKED, _KEY = "clientConfig service name", "objectSelector matchExpressions 0 key"
_QUEUED: Row = (_KEY, (kueue.QUEUE_LABEL,), "it is not asked about jobs in queues alone")
_OF_OPERATOR = (
    (_JOBS, "kubeflow.org", "pytorchjobs", f"{_READ} delete", "it sees no jobs, and ends none"),
    (_JOBS, "kubeflow.org", "pytorchjobs/status pytorchjobs/finalizers", "update", _NO_END),
    (_JOBS, "", "pods services", _MAKE, "ranks do not start, or have no names"),
    (_JOBS, "", "events", "create patch", "nobody learns why a job failed"),
    (_JOBS, "autoscaling", "horizontalpodautoscalers", f"{_MAKE} update", "elastic jobs block it"),
    (_OWN, "", "secrets", _CHANGE, "its webhook has no certificate"),
    (_CLUSTER, _ADMISSION, _HOOKS, _CHANGE, "its webhook is not trusted"),
)
_KEPT = {"": "pods events", "batch": "jobs", "kubeflow.org": "pytorchjobs"}
_OF_RECORDER = (
    *((_JOBS, group, kinds, "list watch", NO_RECORD) for group, kinds in _KEPT.items()),
    (_CLUSTER, "", "nodes", "list watch", "jobs wait for pods on lost nodes"),
    (_JOBS, "", "pods", "delete", "jobs wait for pods on lost nodes"),
    (_JOBS, "", "pods/status", "patch", "jobs wait for pods on lost nodes"),
)
_SETS = WORKLOADS["JobSet"]
_OF_SETS = (
    (_CLUSTER, _SETS.group, "jobsets", _READ, "it sees no jobs"),
    (_CLUSTER, "batch", "jobs", _READ, "it does not learn how ranks end"),
    (_CLUSTER, "", "pods services", _READ, _NO_START),
    (_JOBS, _SETS.group, "jobsets", "delete", "jobs stay forever"),
    (_JOBS, _SETS.group, "jobsets/status jobsets/finalizers", "update", _NO_END),
    (_JOBS, "batch", "jobs", "create delete", "it starts no ranks, or not again"),
    (_JOBS, "", "services", "create", "ranks have no names"),
    (_JOBS, "events.k8s.io", "events", "create patch", "nobody learns why a job failed"),
    (_OWN, "", "secrets", _CHANGE, "its webhook has no certificate"),
    (_CLUSTER, _ADMISSION, f"{_HOOKS} {_MUTATING}", _CHANGE, "its webhook is not trusted"),
)
_TRAIN = WORKLOADS["TrainJob"]
_OF_TRAINER = (
    (_CLUSTER, _TRAIN.group, " ".join(_TRAIN.definitions), _READ, "it sees no jobs"),
    (_CLUSTER, _SETS.group, "jobsets", _READ, "it does not learn how jobs end"),
    (_CLUSTER, "", "configmaps secrets", _READ, "it ends where it may not watch them"),
    (_JOBS, _TRAIN.group, "trainjobs/status", "patch", _NO_END),
    (_JOBS, _TRAIN.group, "trainjobs/finalizers", "update", "no JobSet gets an owner"),
    (_JOBS, _SETS.group, "jobsets", "create patch delete", "it starts no ranks, or ends none"),
    (_JOBS, "", "configmaps", "create patch", "it keeps no runtime, and starts no ranks"),
    *_OF_SETS[-3:],
)
_QUEUES = kueue.GROUP
_OF_QUEUER = (
    (_CLUSTER, _QUEUES, " ".join(kueue.KINDS.values()), _READ, _NO_START),
    (_CLUSTER, "", "nodes pods namespaces", _READ, _NO_START),
    (_CLUSTER, "batch", "jobs", _READ, _NO_START),
    (_CLUSTER, "kubeflow.org", "pytorchjobs", _READ, _NO_START),
    (_CLUSTER, _QUEUES, "clusterqueues/status", "update patch", "no queue becomes active"),
    (_CLUSTER, _QUEUES, "resourceflavors", "update", "no queue becomes active"),
    (_JOBS, _QUEUES, "workloads", "create delete update patch", "no job gets its turn"),
    (_JOBS, _QUEUES, "workloads/status", "update patch", "no job gets its turn"),
    (_JOBS, "kubeflow.org", "pytorchjobs", "update patch", "it starts and stops no job"),
    (_JOBS, "batch", "jobs", "update patch", "it starts and stops no job"),
    (_JOBS, "", "pods", "update patch delete", "pods wait for their node"),
    *_OF_SETS[-3:],
)
_SCALES = (("", "pods", "list"), ("", "nodes", "list patch"), (_QUEUES, "workloads", "list"))
_OF_SCALER = tuple((_CLUSTER, *each, "no node of a pool comes or goes") for each in _SCALES)
_TOLD = (OPERATOR, RECORDER)  # where the jobs are
_RIGHTS = {RECORDER: _OF_RECORDER, "Deployment pool-scaler": _OF_SCALER}
_RIGHTS |= dict(zip(CONTROLLERS, (_OF_OPERATOR, _OF_SETS, _OF_TRAINER, _OF_QUEUER), strict=True))


@manifest_guard
def operator(manifests: Manifests) -> Found:
    """Let the operator do what its code does, and be asked about each PyTorchJob; records too."""
    made = {each.name: each.labels for each in manifests.of("Namespace")}
    # A job in another namespace is a slip of its own.
    spaces = {e.namespace for e in manifests.of(*CONTROLLED) if not made or e.namespace in made}
    spaces |= {name for name, labels in made.items() if labels[UID_LABEL] or labels[TEAM_LABEL]}
    for pod in _controllers(manifests):
        part, watched = part_of(pod.owner), pod.main.at("args --namespace")
        own = [pod.owner.namespace] if part == RECORDER and len(spaces) > 1 else sorted(spaces)
        several = part == OPERATOR and len(spaces) > 1
        right = [None] if several else [f"--namespace={each}" for each in own]
        why = "it sees one team's jobs alone" if several else _ELSEWHERE
        told = watched.must_be(Rule.OPERATOR, *right, why=why) if part in _TOLD else ()
        account, known = pod.spec["serviceAccountName"].text, manifests.of("ServiceAccount")
        names = ["", "default", *(each.name for each in known)]
        there = not known or account in names  # else another guard says so
        yield from [*told] or (_lacking_rights(manifests, pod, sorted(spaces)) if there else ())


@manifest_guard
def webhooks(manifests: Manifests) -> Found:
    """Lead what the API server asks to a controller, about kinds that there are."""
    for each in manifests.of(*_WITH_HOOKS) if _controllers(manifests) else ():
        converts = each.body.at("spec conversion webhook")
        for hook in (*each["webhooks"], *converts.listed):
            service = hook["clientConfig"]["service"]
            target = manifests.named("Service", service["name"].text, service["namespace"].text)
            ports = target["spec"]["ports"] if target else service
            lost = not target or 443 not in [each["port"].raw for each in ports]  # noqa: PLR2004 -- HTTPS
            found = "no such Service with port 443: with failurePolicy Fail, no job is accepted"
            remedy = "name the operator's Service; port 443"
            yield from report(Rule.WEBHOOK, lost, ports, found, remedy)
            yield from () if converts else _asks(hook)


def _asks(hook: Value) -> Found:
    """Compare a path with what is asked: /VERB-GROUP-VERSION-KIND (controller-runtime)."""
    code, spaces, rules = Rule.WEBHOOK, hook["namespaceSelector"], hook["rules"]
    of_queues = hook["objectSelector"] and hook.at(_ASKED).text == kueue.SERVICE
    yield from hook.must_hold(code, _STRICT, *([_QUEUED] if of_queues else []))
    everywhere = spaces.raw == {} or ("batch" in str(rules.raw) and not spaces)
    found = "it is asked in all namespaces: the platform's own Jobs wait for a controller"
    yield from report(code, everywhere, spaces, found, "name the namespaces of jobs")
    path, first = hook["clientConfig"]["service"]["path"], rules[0]
    verb, _, rest = path.text.strip("/").partition("-")
    group, version, plural = (first[e][0].text for e in ("apiGroups", "apiVersions", "resources"))
    asked, _, kind = rest.rpartition("-")
    same = asked == f"{group.replace('.', '-')}-{version}" and verb and kind
    other = not same or not plural.startswith(kind[:-1])
    found = "its rules are about another kind than its path: it is never asked, or answers no"
    yield from report(code, other, path, found, "name the kind of the path")


def _controllers(manifests: Manifests) -> list[Pod]:
    alone = len(manifests.objects) == 1
    return [each for each in manifests.pods if not alone and part_of(each.owner) in _RIGHTS]


def _lacking_rights(manifests: Manifests, pod: Pod, of_jobs: Sequence[str]) -> Found:
    name, space = pod.spec["serviceAccountName"].text, pod.owner.namespace
    bound = granted(manifests, {"kind": "ServiceAccount", "name": name, "namespace": space})
    part, told = part_of(pod.owner), pod.main.at("args --namespace").text.partition("=")[2]
    # The controllers of JobSets, TrainJobs and queues are told of no namespace.
    sets = sorted({each.namespace for each in manifests.of("JobSet", "TrainJob", "LocalQueue")})
    watched = [told] if told else [*of_jobs] if part == OPERATOR and of_jobs[1:] else sets
    rows, kind = [*_RIGHTS[part]], CONTROLLERS.get(part, WORKLOADS["Job"])
    # Of these it may change one alone: its certificate is in it.
    limits = {"secrets": kind.certificate, _HOOKS: kind.webhook, _MUTATING: kind.mutating}
    if part == OPERATOR and not told:
        # What it watches in all of them.
        read = [each for each in rows if each[0] == _JOBS and _READ in each[3]]
        rows += [(_CLUSTER, *each[1:3], _READ, each[4]) for each in read]
    places = {_JOBS: watched, _OWN: [space], _CLUSTER: [""]}
    wanted = [(row, kind, at) for row in rows for kind in row[2].split() for at in places[row[0]]]
    for (where, group, _, verbs, why), resource, namespace in wanted:
        roles = [rules for at, rules in bound if at == namespace]
        lacks = lacking(roles, (group, resource, verbs), limits)
        place = roles[0] if roles else pod.spec["serviceAccountName"]
        only = f" {limits[resource]} alone" if resource in limits else ""
        found = f"no role lets {name} {lacks} {resource}{only}: {why}"
        remedy = f"bind a role with {verbs} for {resource}{only} ({group!r}) to it in {where}"
        yield from report(Rule.RIGHTS, lacks, place, found, remedy)


def granted(manifests: Manifests, subject: Mapping[str, Json]) -> list[tuple[str, Value]]:
    """Return the rules that a subject has, each with its namespace, or none: in all of them."""
    found = []
    for each in manifests.of("RoleBinding", "ClusterRoleBinding"):
        kind, named = each["roleRef"]["kind"].text, each["roleRef"]["name"].text
        role = manifests.named(kind, named, each.namespace)
        given = [e.raw for e in each["subjects"] if isinstance(e.raw, dict)]
        if role and any(subject.items() <= each.items() for each in given):
            found.append((each.namespace, role["rules"]))
    return found


def lacking(
    roles: Sequence[Value], right: tuple[str, str, str], limits: Mapping[str, str] = {}
) -> str:
    """Return which verbs of a right, GROUP, RESOURCE and VERBS, no role gives."""
    rules, (group, resource, verbs) = [rule for role in roles for rule in role], right
    wanted = [(verb, (group, resource, verb)) for verb in verbs.split()]
    return ", ".join(v for v, e in wanted if not any(_gives(rule, e, limits) for rule in rules))


def _gives(rule: Value, right: tuple[str, str, str], limits: Mapping[str, str]) -> bool:
    keys = zip(("apiGroups", "resources", "verbs"), right, strict=True)
    named, only = rule["resourceNames"].texts, limits.get(right[1])
    limited = only in named if only and right[2] == "update" else not named
    return limited and all({one, "*"} & set(rule[key].texts) for key, one in keys)
