"""`meks nodes`: the nodes, which of them fail, and keeping jobs away from those."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import CHECK_FAILED, DONE, NOT_FOUND, Failure, no_such
from megatron_eks.ops.jobs import logs, room, suspects
from megatron_eks.ops.kube import jobs, teams
from megatron_eks.ops.output import count, formatted, table
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import POOL_LABEL

REASON = "megatron-eks/cordoned-because"

_TYPE, _ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
_MERGE = "application/merge-patch+json"
_SHOWN = 3
_TAIL = 200


@dataclass(frozen=True)
class NodeState:
    """One node."""

    name: str
    pool: str
    instance: str
    """The id of the EC2 instance; empty where Kubernetes does not know it."""
    type: str
    zone: str
    state: str
    """Ready, NotReady, and whether it is cordoned."""
    reason: str
    """Why it was cordoned."""
    gpus: int
    free_gpus: int
    efa: int
    jobs: tuple[str, ...]
    """Whose pods are on it now."""
    failures: tuple[suspects.Failure, ...]
    suspect: bool

    @property
    def cordoned(self) -> bool:
        """Whether it takes no new pods."""
        return "cordoned" in self.state


def run(client: Client, plan: ClusterPlan, pool: str | None, output: str, console: Console) -> int:
    """Print the nodes of the cluster, or of a pool."""
    names = [each.name for each in plan.pools]
    if pool is not None and pool not in names:
        text = f"no pool {pool!r} in the cluster file"
        raise no_such(Code.NODE_NOT_FOUND, text, pool, names, more="; meks nodes shows all nodes")
    found = [each for each in read(client, plan) if pool is None or each.pool == pool]
    console.write(formatted(output, _lines(found), lambda: _as_json(plan, found)))
    return DONE


def suspicious(client: Client, plan: ClusterPlan, output: str, console: Console) -> int:
    """Name the nodes that fail, and how to keep jobs away from them."""
    found = [each for each in read(client, plan) if each.suspect]
    lines = [line for each in found for line in _against(each, plan.region)]
    shown = lines or ["No node is suspect."]
    console.write(formatted(output, shown, lambda: _as_json(plan, found)))
    free = " ".join(each.name for each in found if not each.cordoned)
    if free:
        console.say(f"to keep jobs away: meks nodes cordon {free}")
    return CHECK_FAILED if found else DONE


def cordon(
    client: Client, plan: ClusterPlan, names: Sequence[str], reason: str, console: Console
) -> int:
    """Keep new pods away from nodes."""
    for each in _named(read(client, plan), names):
        _patch(client, each.name, cordoned=True, reason=reason or None)
        console.say(f"{each.name} takes no more pods")
        if each.jobs:
            console.say(f"still on it until they end: {', '.join(each.jobs)}")
    return DONE


def uncordon(client: Client, plan: ClusterPlan, names: Sequence[str], console: Console) -> int:
    """Let pods onto nodes again."""
    for each in _named(read(client, plan), names):
        _patch(client, each.name, cordoned=False, reason=None)
        console.say(f"{each.name} takes pods again")
        if each.suspect:
            console.say(f"{each.name} is suspect: {each.failures[-1].what}")
    return DONE


def read(client: Client, plan: ClusterPlan) -> list[NodeState]:
    """Return all nodes, by pool and name."""
    found = client.list("v1", "Node")
    everywhere = teams.everywhere(client, plan, "v1", "Pod")
    known = {(x.namespace, x.kind, x.name): x for x in teams.everybody(client, plan)}
    own = [
        (known[key], pod)
        for pod in everywhere
        if (key := (pod["metadata"]["namespace"], *(jobs.job_of(pod) or ("", "")))) in known
    ]

    def words(rank: jobs.Rank, previous: bool) -> list[str]:  # noqa: FBT001 -- as `Words` has it
        assert rank.manifest is not None  # noqa: S101 -- it has ended
        space = rank.manifest["metadata"]["namespace"]
        options = logs.Options(tail=_TAIL, previous=previous)
        # A node that is gone has taken its logs along.
        with contextlib.suppress(ApiError, UnreachableError):
            return list(logs.printed(client, space, rank, options))
        return []

    against = suspects.failures(found, own, teams.everywhere(client, plan, "v1", "Event"), words)
    rooms = room.rooms(found, everywhere)
    states = [_state(*each, own, against) for each in zip(found, rooms, strict=True)]
    return sorted(states, key=lambda each: (each.pool == "", each.pool, each.name))


def _state(
    node: Object,
    has: room.NodeRoom,
    own: Iterable[tuple[jobs.RunningJob, Object]],
    against: Iterable[suspects.Failure],
) -> NodeState:
    ready = "Ready" if has.ready else "NotReady"
    failures = tuple(each for each in against if each.node == has.name)
    running = {
        job.name
        for job, pod in own
        if pod["spec"].get("nodeName") == has.name and pod["status"].get("phase") == "Running"
    }
    return NodeState(
        name=has.name,
        pool=has.labels.get(POOL_LABEL, ""),
        instance=str(node["spec"].get("providerID", "")).rpartition("/")[2],
        type=has.labels.get(_TYPE, ""),
        zone=has.labels.get(_ZONE, ""),
        state=f"{ready}, cordoned" if has.cordoned else ready,
        reason=(node["metadata"].get("annotations") or {}).get(REASON, ""),
        gpus=int(has.allocatable.get(room.GPU, 0)),
        free_gpus=int(has.free.get(room.GPU, 0)),
        efa=int(has.allocatable.get(room.EFA, 0)),
        jobs=tuple(sorted(running)),
        failures=failures,
        suspect=bool(failures),
    )


def _named(found: Sequence[NodeState], names: Sequence[str]) -> list[NodeState]:
    by_name = {
        **{each.instance: each for each in found if each.instance},
        **{each.name: each for each in found},
    }
    unknown = [name for name in names if name not in by_name]
    if unknown:
        text, remedy = f"no node {', '.join(unknown)}", "nothing was changed; meks nodes shows all"
        raise Failure(Code.NODE_NOT_FOUND, text, remedy, exit_code=NOT_FOUND)
    return [by_name[name] for name in dict.fromkeys(names)]


def _patch(client: Client, name: str, *, cordoned: bool, reason: str | None) -> None:
    # null takes a field away.
    body = {
        "metadata": {"annotations": {REASON: reason}},
        "spec": {"unschedulable": True if cordoned else None},
    }
    client.request("PATCH", f"/api/v1/nodes/{name}", body, content_type=_MERGE)


def _lines(found: Sequence[NodeState]) -> Iterator[str]:
    if not found:
        yield "No nodes; take some: meks scale POOL N"
        return
    header = ("NODE", "POOL", "TYPE", "ZONE", "STATE", "GPUS", "FREE", "EFA", "FAILED", "JOBS")
    rows = [
        (
            each.instance or each.name,
            each.pool or "-",
            each.type,
            each.zone,
            each.state,
            *map(str, (each.gpus, each.free_gpus, each.efa, len(each.failures))),
            ", ".join(each.jobs),
        )
        for each in found
    ]
    yield from table(header, rows, right=(5, 6, 7, 8))
    for each in found:
        if each.reason:
            yield f"{each.name} is cordoned because: {each.reason}"
    wrong = sum(each.suspect for each in found)
    if wrong:
        yield f"{count(wrong, 'suspect node')}: meks nodes --suspect"


def _against(node: NodeState, region: str) -> Iterator[str]:
    """Yield what speaks against a node, and how to have another in its place."""
    place = f"{node.type} in {node.zone}" + (f", {node.instance}" if node.instance else "")
    yield f"{Code.SUSPECT_NODE} {node.name} ({place}), {node.state}"
    for each in node.failures[-_SHOWN:]:
        where = f", rank {each.rank} of {each.job}" if each.job else ""
        yield f"  {each.when}{where}: {each.what}"
    if len(node.failures) > _SHOWN:
        yield f"  and {len(node.failures) - _SHOWN} before"
    if node.instance:
        yield "  to have EC2 replace it, once its jobs have ended or were cancelled:"
        yield "    aws autoscaling terminate-instance-in-auto-scaling-group \\"
        yield f"      --instance-id {node.instance} --no-should-decrement-desired-capacity \\"
        yield f"      --region {region}"


def _as_json(plan: ClusterPlan, found: Sequence[NodeState]) -> Json:
    nodes: list[Json] = [asdict(each) for each in found]
    return {"schema_version": 1, "cluster": plan.name, "nodes": nodes}
