"""Whether a job would run: what it needs and is not there, and what it would wait for."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WITH_PODS, templates
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.console import Console
from megatron_eks.ops.jobs import expected, queues, room
from megatron_eks.ops.kube import jobs, teams
from megatron_eks.ops.kube.pods import has_ended, pool_of
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import POOL_LABEL
from megatron_eks.plan.jobs.job import JobPlan

_APPLY = "run: meks apply"


@dataclass(frozen=True)
class Obstacle:
    """Something in the way of a job."""

    found: str
    remedy: str
    is_final: bool
    """Whether waiting does not help."""

    def __str__(self) -> str:
        """Return it on one line."""
        return f"{self.found} - {self.remedy}"


def obstacles(
    client: Client, plan: ClusterPlan, workload: Object, plans: Sequence[JobPlan] = ()
) -> list[Obstacle]:
    """Return everything that keeps a job from running now; `plans` tell for how long."""
    namespace = workload["metadata"]["namespace"]
    if client.find("v1", "Namespace", namespace) is None:
        return [Obstacle(f"there is no namespace {namespace}", _APPLY, is_final=True)]
    if not client.serves(workload["apiVersion"], workload["kind"]):
        return [Obstacle(f"the cluster knows no {workload['kind']}", _APPLY, is_final=True)]
    specs = jobs.pod_specs(workload)
    return [
        *_needed(client, namespace, specs[0][1]),
        *_quotas(client, namespace, specs),
        *_queue(client, workload, plans),
        *_nodes(client, plan, specs),
    ]


def _needed(client: Client, namespace: str, pod: Object) -> Iterator[Obstacle]:
    for volume in pod.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            name = claim["claimName"]
            live = client.find("v1", "PersistentVolumeClaim", name, namespace)
            if live is None:
                yield Obstacle(f"there is no claim {name}", _APPLY, is_final=True)
            elif live.get("status", {}).get("phase") != "Bound":
                found = f"claim {name} is not bound to a volume"
                yield Obstacle(found, "meks status", is_final=False)
    for secret in dict.fromkeys(secrets_of(pod)):
        if client.find("v1", "Secret", secret, namespace) is None:
            remedy = f"meks secret set {secret} < FILE"
            yield Obstacle(f"there is no Secret {secret}", remedy, is_final=True)
    for version, kind, name, place in (
        ("v1", "ServiceAccount", pod.get("serviceAccountName"), namespace),
        ("scheduling.k8s.io/v1", "PriorityClass", pod.get("priorityClassName"), None),
    ):
        if name and client.find(version, kind, name, place) is None:
            yield Obstacle(f"there is no {kind} {name}", _APPLY, is_final=True)


def secrets_of(pod: Object) -> Iterator[str]:
    """Yield the Secrets that a pod mounts or takes variables from, and waits for."""
    for volume in pod.get("volumes") or ():
        if (mounted := volume.get("secret")) and not mounted.get("optional"):
            yield mounted["secretName"]
    for container in pod.get("containers") or ():
        for each in container.get("env") or ():
            if named := (each.get("valueFrom") or {}).get("secretKeyRef"):
                yield named["name"]


def _quotas(
    client: Client, namespace: str, specs: Sequence[tuple[int, Object]]
) -> Iterator[Obstacle]:
    wanted: room.Amounts = {}
    for count, spec in specs:
        for name, amount in {**room.requests(spec), "pods": Fraction(1)}.items():
            wanted[name] = wanted.get(name, Fraction(0)) + amount * count
    for each in client.list("v1", "ResourceQuota", namespace):
        if not _in_scope(each, specs[0][1]):
            continue
        status = each.get("status", {})
        hard, used = (room.amounts(status.get(part) or {}) for part in ("hard", "used"))
        for name, limit in hard.items():
            resource = name.removeprefix("requests.")
            amount = wanted.get(resource, Fraction(0))
            if not amount or amount + used.get(name, Fraction(0)) <= limit:
                continue
            taken = used.get(name, Fraction(0))
            found = (
                f"quota {each['metadata']['name']} allows {float(limit):g} {resource}, "
                f"{float(taken):g} are in use, and the job asks for {float(amount):g}"
            )
            if amount > limit:
                remedy = f"use fewer nodes, or raise max_nodes in the cluster file and {_APPLY}"
                yield Obstacle(found, remedy, is_final=True)
            else:
                yield Obstacle(found, "it waits for other jobs to end", is_final=False)


def _queue(client: Client, workload: Object, plans: Sequence[JobPlan]) -> Iterator[Obstacle]:
    metadata = workload["metadata"]
    name = (metadata.get("labels") or {}).get(kueue.QUEUE_LABEL)
    if name is None:
        return
    if client.find(kueue.API_VERSION, "LocalQueue", name, metadata["namespace"]) is None:
        yield Obstacle(f"there is no queue {name}", _APPLY, is_final=True)
        return
    found = queues.read(client, metadata["namespace"])
    if why := expected.of_entry(client, plans, found, queues.expected(workload, name)):
        yield Obstacle(f"in the queue, {why}", "meks queue", is_final=False)


def _in_scope(quota: Object, pod: Object) -> bool:
    selector = quota["spec"].get("scopeSelector") or {}
    for each in selector.get("matchExpressions") or ():
        if each["scopeName"] != "PriorityClass":
            return False
        is_in = pod.get("priorityClassName") in (each.get("values") or ())
        if is_in != (each["operator"] == "In"):
            return False
    return True


def _nodes(
    client: Client, plan: ClusterPlan, specs: Sequence[tuple[int, Object]]
) -> Iterator[Obstacle]:
    pod = specs[0][1]
    wanted = sum(count for count, _ in specs)
    pool, asked = pool_of(pod), room.requests(pod)
    pods = teams.everywhere(client, plan, "v1", "Pod")
    rooms = [each for each in room.rooms(client.list("v1", "Node"), pods) if each.takes(pod)]
    usable = [each for each in rooms if each.usable]
    able = [each for each in usable if not room.lacking(asked, each.allocatable)]
    places = sum(_places(asked, each.free) for each in able)
    if places >= wanted:
        return
    where = f"pool {pool}" if pool else "the system nodes"
    possible = sum(_places(asked, each.allocatable) for each in able)
    if possible >= wanted:
        names = {each.name for each in able}
        users = sorted(
            name
            for (_, name), found in jobs.by_job(pods).items()
            if any(each["spec"].get("nodeName") in names and not has_ended(each) for each in found)
        )
        by = f" by {', '.join(users)}" if users else ""
        found = f"{where} has room for {places} of {wanted} pods; the rest of it is in use{by}"
        yield Obstacle(found, "it waits for other jobs to end: meks status", is_final=False)
        return
    known = next((each for each in plan.pools if each.name == pool), None)
    per_node = _places(asked, able[0].allocatable) if able else 1
    needed = -(-wanted // max(1, per_node))
    found = f"{where} has {len(able)} of the {needed} nodes that this takes"
    if known is None:
        yield Obstacle(found, "wait for a system node, or add one", is_final=False)
    elif known.idle_minutes is not None:
        yield Obstacle(found, "it brings the others as soon as its queue lets it", is_final=False)
    elif len(usable) < needed:
        yield Obstacle(found, f"take them: meks scale {pool} {needed}", is_final=False)
    else:
        remedy = "see whether the device plugins run: meks preflight cluster"
        yield Obstacle(found, remedy, is_final=False)


def _places(asked: room.Amounts, offered: room.Amounts) -> int:
    return min(
        (int(offered.get(name, 0) // amount) for name, amount in asked.items() if amount > 0),
        default=1,
    )


def ease(client: Client, objects: Iterable[Object], console: Console) -> None:
    """Let groups be divided where the nodes leave no other way, and say so.

    Kueue knows such groups as a condition alone, and would let the job wait for ever.
    """
    for each in objects:
        for count, template in templates(each) if each["kind"] in WITH_PODS else ():
            notes = template["metadata"].get("annotations") or {}
            size = int(notes.get(kueue.SLICE_SIZE_ANNOTATION, 0))
            if not size:
                continue
            pool = template["spec"]["nodeSelector"][POOL_LABEL]
            nodes = client.list("v1", "Node", labels=f"{POOL_LABEL}={pool}")
            usable = [e for e in room.rooms(nodes, ()) if e.usable]
            below = Counter(e.labels.get(notes[kueue.SLICE_ANNOTATION]) for e in usable)
            whole = sum(number // size * size for number in below.values())
            # Of nodes that are still to come nobody knows where they will be.
            if whole < count <= len(usable):
                del notes[kueue.SLICE_ANNOTATION], notes[kueue.SLICE_SIZE_ANNOTATION]
                console.say(
                    f"note: of {count // size} groups of {size} nodes, whose ranks wait for each "
                    f"other in each layer, {whole // size} fit below one network node of pool "
                    f"{pool}; others must be divided, so steps may take longer"
                )
