"""`meks status --nodes`: what runs on each node, how the node is, and what its devices do."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from megatron_eks.config.load import Json
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.jobs import gpu_use
from megatron_eks.ops.jobs.gpu_use import Use
from megatron_eks.ops.kube import pods
from megatron_eks.ops.kube.jobs import Rank, RunningJob
from megatron_eks.ops.output import picked, table
from megatron_eks.plan.cluster.pools import POOL_LABEL

_MIB_A_GIB = 1024
_SHOWN = 60


@dataclass(frozen=True)
class Placed:
    """A rank on a node."""

    job: str
    rank: int
    pod: str
    phase: str
    use: Use


@dataclass(frozen=True)
class NodeUse:
    """A node, and the ranks on it."""

    node: str
    pool: str
    state: str
    ranks: tuple[Placed, ...]


def read(
    client: Client,
    nodes: Mapping[str, Object],
    jobs: Iterable[tuple[RunningJob, Sequence[Rank]]],
    *,
    all_nodes: bool,
) -> tuple[NodeUse, ...]:
    """Ask the ranks of jobs; with `all_nodes` nodes without any are told too."""
    placed = [
        (job, rank, rank.pod) for job, ranks in jobs for rank in ranks if rank.pod and rank.pod.node
    ]
    running: dict[str, list[str]] = {}
    for job, _, pod in placed:
        if pod.phase == "Running":
            running.setdefault(job.namespace, []).append(pod.name)
    uses = {space: gpu_use.ask(client, space, names) for space, names in running.items()}
    by_node: dict[str, list[Placed]] = {name: [] for name in nodes if all_nodes}
    for job, rank, pod in placed:
        use = uses.get(job.namespace, {}).get(pod.name, Use(note=pod.reason))
        by_node.setdefault(pod.node, []).append(
            Placed(job.name, rank.number, pod.name, pod.phase, use)
        )
    return tuple(
        NodeUse(
            node=name,
            pool=(nodes.get(name, {}).get("metadata", {}).get("labels") or {}).get(POOL_LABEL, ""),
            state=state(nodes.get(name)),
            ranks=tuple(by_node[name]),
        )
        for name in sorted(by_node)
    )


def lines(found: Sequence[NodeUse]) -> Iterator[str]:
    """Yield a line a rank, and one for a node without any."""
    rows: list[tuple[str, ...]] = []
    notes: dict[str, list[str]] = {}
    jobs = {each.job for node in found for each in node.ranks}
    for node in found:
        name = node.node.partition(".")[0]
        bad = node.state not in {"ready", "cordoned"}
        if bad:
            notes.setdefault(node.state, []).append(f"node {name}")
        state = "bad" if bad else node.state
        for each in node.ranks:
            if each.use.note:
                notes.setdefault(each.use.note, []).append(f"{each.job} rank {each.rank}")
            rows.append((name, state, str(each.rank), *_use(each), each.job))
        if not node.ranks:
            rows.append((name, state, "", "", "", "", "", ""))
    if rows:
        header = ("NODE", "STATE", "RANK", "GPUS", "USE", "MEMORY", "EFA OUT/IN", "JOB")
        # The one job of `meks status JOB` need not be said on each line.
        columns = len(header) - (len(jobs) <= 1)
        shorter = [row[:columns] for row in rows]
        yield from table(header[:columns], shorter, right=(2, 3, 4))
    for note, places in notes.items():
        shown = ", ".join(places)
        more = f"{shown[:_SHOWN]}..." if len(shown) > _SHOWN else shown
        yield f"{more}: {note}"


def as_json(found: Sequence[NodeUse]) -> list[Json]:
    """Return it as plain values."""
    return [
        {
            **picked(node, "node", "pool", "state"),
            "ranks": [
                {**picked(each, "job", "rank", "pod", "phase"), **asdict(each.use)}
                for each in node.ranks
            ],
        }
        for node in found
    ]


def _use(each: Placed) -> tuple[str, str, str, str]:
    """Write the devices of a rank: its GPUs' use with the least and the most, the most memory."""
    gpus = each.use.gpus
    if not gpus:
        return ("", each.phase if each.phase != "Running" else "?", "", each.use.efa)
    use = [gpu.use_percent for gpu in gpus if gpu.use_percent is not None]
    memory = [
        (gpu.memory_used_mib, gpu.memory_total_mib)
        for gpu in gpus
        if gpu.memory_used_mib is not None and gpu.memory_total_mib is not None
    ]
    most = max(memory, default=None)
    return (
        str(len(gpus)),
        f"{min(use)}-{max(use)} %" if use else "?",
        f"{most[0] / _MIB_A_GIB:.1f} of {most[1] / _MIB_A_GIB:.1f} GiB" if most else "?",
        each.use.efa,
    )


_PRESSURE = frozenset({"DiskPressure", "MemoryPressure", "PIDPressure", "NetworkUnavailable"})


def state(node: Object | None) -> str:
    """Return a node's state: ready, cordoned, or what is wrong with it."""
    if node is None:
        return "not in the cluster"
    if found := trouble(node):
        return found
    return "cordoned" if node.get("spec", {}).get("unschedulable") else "ready"


def trouble(node: Object) -> str:
    """Say what is wrong with a node, or nothing."""
    found: list[str] = []
    for each in node.get("status", {}).get("conditions") or ():
        kind, status = each["type"], each["status"]
        if kind == "Ready" and status != "True":
            found.insert(0, _with("is not ready", each))
        elif kind.endswith("Ready") and kind != "Ready" and status == "False":
            found.append(_with(f"is not healthy ({kind})", each))
        elif kind in _PRESSURE and status == "True":
            found.append(_with(f"has {kind}", each))
    return "; ".join(found)


def _with(words: str, condition: Object) -> str:
    why = condition.get("message") or condition.get("reason") or ""
    return pods.one_line(f"{words}: {why}") if why else words
