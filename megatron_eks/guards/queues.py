"""Guards of queues: from a job's label down to the network above its nodes.

Where a name leads to nothing, Kueue lets jobs wait for ever, and says so in an object's status.
"""

from collections.abc import Iterator
from itertools import product

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.config.errors import Finding
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.components import DEFINITION
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.pods import EFA, GPU, POOL, is_share, tolerates_pool
from megatron_eks.guards.values import Value, report

_SPACE, _GROUPS = "kubernetes.io/metadata.name", "resourceGroups"
_QUEUE = (
    ("resourceGroups", (), "it has no nodes, and jobs wait for ever"),
    ("preemption withinClusterQueue", ("LowerPriority",), "no class of jobs comes before another"),
    ("preemption reclaimWithinCohort", ("Any",), "a team waits for nodes that it has lent"),
)


@manifest_guard
def queues(manifests: Manifests) -> Iterator[Finding]:
    """Let every queue lead to nodes, and every job with a queue have one."""
    for kind, value, space in _names(manifests):
        known = [each.name for each in manifests.of(kind) if each.namespace in {"", space}]
        found = f"no {kind} {value.text!r}: jobs wait for ever"
        missing = known and value.text not in known
        yield from report(
            Rule.MISSING_OBJECT, (missing, value, found, f"use one of {', '.join(known)}")
        )
    for queue in manifests.of("ClusterQueue"):
        spec, uses = queue["spec"], manifests.of("LocalQueue")
        spaces = [e.namespace for e in uses if e["spec"]["clusterQueue"].text == queue.name]
        chosen, why = spec["namespaceSelector"]["matchLabels"][_SPACE], "no job of it ever starts"
        yield from chosen.must_be(Rule.MISSING_OBJECT, *spaces, why=why) if spaces else ()
        yield from spec.must_hold(Rule.MISSING_OBJECT, _QUEUE)
    if any(manifests.of("LocalQueue")):
        # The pods of a TrainJob stand in the runtime of its name.
        devices = {each.owner.name for each in manifests.pods if each.asks("nvidia.com/gpu")}
        networks = [e for each in manifests.of("Topology") for e in each["spec"]["levels"]]
        levels = [each["nodeLabel"].text for each in networks]
        for pod in manifests.pods:
            near = pod.metadata["annotations"][kueue.PREFERRED_ANNOTATION]
            if pod.of_job and pod.owner.wanted > 1 and pod.asks(GPU) and levels:
                yield from near.must_be(Rule.QUEUE_SHARE, *levels, why="ranks start far apart")
        for job in manifests.of(*WORKLOADS):
            place = job["metadata"]
            if place["labels"][kueue.QUEUE_LABEL]:
                rows = [(kueue.PRIORITY_LABEL, (), "it comes after all that name a class")]
                yield from place["labels"].must_hold(Rule.QUEUE_SHARE, rows)
            lost = job.name in devices and not place["labels"][kueue.QUEUE_LABEL]
            found = "a job with GPUs in no queue takes the nodes of those that wait"
            yield from report(Rule.MISSING_OBJECT, (lost, place, found, "add its label"))


@manifest_guard
def shares(manifests: Manifests) -> Iterator[Finding]:
    """Count what nodes have, for pods that may start there (Kueue, "Cluster Queue", "Flavors")."""
    code, efa = Rule.QUEUE_SHARE, any("efa" in each.name for each in manifests.of("DaemonSet"))
    for flavor in manifests.of("ResourceFlavor"):
        pool, listed = flavor["spec"]["nodeLabels"][POOL], flavor["spec"]["tolerations"]
        yield from pool.must_be(Rule.FLAVOR, flavor.name, why="its jobs start on other nodes")
        refused, remedy = not any(map(tolerates_pool, listed)), f"tolerate {GPU} with NoSchedule"
        found = "it does not tolerate the taint of its nodes: Kueue finds no room for any job"
        yield from report(Rule.FLAVOR, (refused, listed, found, remedy))
    for group in (g for e in manifests.of("ClusterQueue", "Cohort") for g in e["spec"][_GROUPS]):
        covered = group["coveredResources"]
        for name in (each for each in (GPU, *[EFA] * efa) if each not in covered.texts):
            found = f"{name} is not counted: jobs start for which there is no node"
            yield covered.finding(code, found, f"add {name}, and its quotas")
        for share in (flavor["resources"] for flavor in group["flavors"]):
            other = [each["name"].text for each in share] != covered.texts
            found = "not the covered resources in their order: Kueue refuses the queue"
            yield from report(code, (other, share, found, f"name {covered.texts}"))
            gpus, cards = (share.at(f"name={each}")["nominalQuota"] for each in (GPU, EFA))
            found = f"{gpus.raw} GPUs with {cards.raw} EFA devices are no share of any node"
            wrong = efa and cards and not is_share(gpus, cards)
            yield from report(code, (wrong, cards, found, "count both of the same nodes"))
    for job in manifests.of(*WORKLOADS):
        label, space = job["metadata"]["labels"][kueue.QUEUE_LABEL], job.namespace
        local = manifests.named("LocalQueue", label.text, space)
        queue = manifests.named("ClusterQueue", local["spec"]["clusterQueue"].text if local else "")
        pods = [e for e in manifests.pods if (e.owner.name, e.owner.namespace) == (job.name, space)]
        for pod, resource in product(pods[:1], (GPU, EFA)) if queue else ():
            yield from _waiting(queue, label, pod, resource) if queue else ()


def _waiting(queue: Object, label: Value, pod: Pod, resource: str) -> Iterator[Finding]:
    wanted = pod.owner.wanted * (pod.main["resources"]["limits"][resource].quantity or 0)
    flavors = [flavor for group in queue["spec"][_GROUPS] for flavor in group["flavors"]]
    own = [each["resources"].at(f"name={resource}") for each in flavors]
    most = sum(each["nominalQuota"].quantity or 0 for each in own)
    limited = own and all(each["borrowingLimit"].quantity == 0 for each in own)
    found = f"{wanted} of {resource}, but queue {queue.name} has {most}: it waits for ever"
    row = (limited and wanted > most, label, found, "use fewer nodes, or raise the quota")
    yield from report(Rule.ABOVE_QUOTA, row)


@manifest_guard
def asked(manifests: Manifests) -> Iterator[Finding]:
    """Let Kueue hold back every kind of job that there is, or those pass all that wait."""
    for each in manifests.of("ConfigMap"):
        settings = each["data"]["configuration.json"].parsed
        frameworks = settings["integrations"]["frameworks"]
        hooks = [e for e in manifests.of("MutatingWebhookConfiguration") if "kueue" in e.name]
        rules = [rule for hook in hooks for part in hook["webhooks"] for rule in part["rules"]]
        plurals = {text for rule in rules for text in rule["resources"].texts}
        for kind, known in WORKLOADS.items() if each.namespace == kueue.NAMESPACE else ():
            defined = manifests.named(DEFINITION, f"{known.plural}.{known.group}")
            there = defined or known.controller is None
            unknown = there and kueue.FRAMEWORKS[kind] not in frameworks.texts
            found = f"{kueue.FRAMEWORKS[kind]} is missing: a {kind} waits for no turn"
            place = frameworks or each["data"]
            rows = [(unknown, place, found, "add it to integrations.frameworks")]
            if hooks:
                found = f"Kueue is not asked about {known.plural}: they wait for no turn"
                lost = there and known.plural not in plurals
                rows.append((lost, hooks[0]["webhooks"], found, "add the webhook of them"))
            yield from report(Rule.UNQUEUED, *rows)


def _names(manifests: Manifests) -> Iterator[tuple[str, Value, str]]:
    """Yield what names another object: of which kind, and from which namespace."""
    for job in manifests.of(*WORKLOADS):
        labels = job["metadata"]["labels"]
        for kind, label in (
            ("LocalQueue", kueue.QUEUE_LABEL),
            ("WorkloadPriorityClass", kueue.PRIORITY_LABEL),
        ):
            if labels[label]:
                yield kind, labels[label], job.namespace
    for each in manifests.of("LocalQueue"):
        yield "ClusterQueue", each["spec"]["clusterQueue"], ""
    for each in manifests.of("ClusterQueue", "Cohort"):
        for group in each["spec"]["resourceGroups"]:
            yield from (("ResourceFlavor", flavor["name"], "") for flavor in group["flavors"])
    for each in manifests.of("ResourceFlavor"):
        yield "Topology", each["spec"]["topologyName"], ""
