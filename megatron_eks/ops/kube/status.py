"""`meks status JOB`: how a job does, rank by rank, and what it waits for."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from megatron_eks.config.load import Json
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.endings import DONE
from megatron_eks.ops.kube import jobs, pods
from megatron_eks.ops.kube.jobs import Rank, RunningJob
from megatron_eks.ops.kube.progress import Progress, progress
from megatron_eks.ops.output import structured, table
from megatron_eks.plan.cluster import ClusterPlan

# Of the operator, and of Kubernetes' own Jobs.
_NO_POD = frozenset({"FailedCreatePod", "FailedCreate"})


def run(client: Client, plan: ClusterPlan, name: str, output: str, console: Console) -> int:
    """Print a job's phase, its ranks, and what it waits for."""
    job = jobs.get(client, plan.platform.namespace, name)
    events = client.list("v1", "Event", job.namespace)
    ranks = jobs.ranks(job, jobs.pods_of(client, job), events)
    step = progress(client, job.namespace, ranks)
    reasons = list(waits(job, ranks, events))
    if output == "table":
        console.write("\n".join(_lines(job, ranks, step, reasons)) + "\n")
    else:
        console.write(structured(_as_json(job, ranks, step, reasons), output))
    return DONE


def ranks_of(client: Client, job: RunningJob) -> list[Rank]:
    """Return a job's ranks as they are now."""
    events = client.list("v1", "Event", job.namespace)
    return jobs.ranks(job, jobs.pods_of(client, job), events)


def summary(job: RunningJob, ranks: Sequence[Rank]) -> str:
    """Return one line: phase, and how many ranks run."""
    running = sum(rank.pod is not None and rank.pod.phase == "Running" for rank in ranks)
    phase = job.phase(ranks)
    if phase in jobs.ENDED:
        return f"{job.name}: {phase}{_after(job.message())}"
    return f"{job.name}: {phase}, {running} of {len(ranks)} ranks run"


def _after(text: str) -> str:
    return f" - {text}" if text else ""


def waits(job: RunningJob, ranks: Sequence[Rank], events: Sequence[Object]) -> Iterator[str]:
    """Yield why ranks do not run, ranks of one reason together."""
    reasons: dict[str, list[int]] = {}
    for rank in ranks:
        if rank.pod is not None and rank.pod.reason:
            reasons.setdefault(rank.pod.reason, []).append(rank.number)
    missing = [rank.number for rank in ranks if rank.pod is None]
    if missing and not job.ended:
        reasons[_why_no_pod(job, events)] = missing
    for reason, numbers in sorted(reasons.items(), key=lambda each: each[1]):
        yield f"{_numbers(numbers)}: {reason}"


def _why_no_pod(job: RunningJob, events: Sequence[Object]) -> str:
    """Return why the controller makes no pod: a quota, Pod Security, a missing priority class."""
    own = [
        each
        for each in sorted(events, key=pods.when)
        if each["involvedObject"].get("uid") == job.uid and each.get("reason") in _NO_POD
    ]
    if not own:
        return "no pod yet"
    return pods.one_line(f"no pod: {own[-1].get('message')}")


def _numbers(numbers: Sequence[int]) -> str:
    """Write rank numbers with ranges: `ranks 0, 2-255`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)
    return f"rank {shown}" if len(numbers) == 1 else f"ranks {shown}"


def _lines(
    job: RunningJob, ranks: Sequence[Rank], step: Progress | None, reasons: Sequence[str]
) -> Iterator[str]:
    yield summary(job, ranks)
    if step:
        yield f"step {step}"
    if ranks:
        rows = [
            (
                str(rank.number),
                rank.pod.name if rank.pod else "",
                _short(rank.pod.node) if rank.pod else "",
                rank.pod.phase if rank.pod else "no pod",
                str(rank.pod.restarts) if rank.pod else "",
            )
            for rank in ranks
        ]
        yield from table(("RANK", "POD", "NODE", "STATE", "RESTARTS"), rows, right=(0, 4))
    yield from reasons


def _as_json(
    job: RunningJob, ranks: Sequence[Rank], step: Progress | None, reasons: Sequence[str]
) -> Json:
    rows: list[Json] = [
        {"rank": rank.number, **(_pod_json(rank) if rank.pod else {"phase": "Missing"})}
        for rank in ranks
    ]
    return {
        "name": job.name,
        "kind": job.kind,
        "namespace": job.namespace,
        "phase": job.phase(ranks),
        "message": job.message(),
        "progress": asdict(step) if step else None,
        "ranks": rows,
        "waits_for": list(reasons),
    }


def _pod_json(rank: Rank) -> dict[str, Json]:
    fields: dict[str, Json] = asdict(rank.pod) if rank.pod else {}
    return {"pod": fields.pop("name", ""), **fields}


def _short(node: str) -> str:
    """Write a node's name without the domain that all of them share."""
    return node.partition(".")[0]
