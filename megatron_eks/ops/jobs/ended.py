"""What a job's record tells once its pods are gone, in the words of pods and of their logs."""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.kubernetes.client import Object
from megatron_eks.ops.jobs.look import Logs, Look
from megatron_eks.ops.kube import jobs, pods
from megatron_eks.ops.kube.jobs import CONTAINER, Rank, RunningJob
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.programs import run_log

_LINE = re.compile(r"\[\s*(\d+)\] (.*)", re.DOTALL)
# What megatron_eks/programs/record.py writes about a rank.
START = re.compile(r"record: start (\d+), ([\dT:-]+Z)")
END = re.compile(
    r"record: (?:ended with exit code (\d+)|was ended by signal (\d+)), ([\dT:-]+Z)(?:: (.*))?"
)
_OWN = re.compile(r"\[\s*\d+\] record: |\[object\] ")
_OBJECT = "[object] "
# SIGKILL alone leaves no last line: out of memory, or a node that was lost.
_KILLED, _BY_SIGNAL = 137, 128
# SIGTERM: the job was given up, or somebody cancelled it.
_TOLD, _JUST_SECONDS = {("143", None), (None, "15")}, 600
# What torchrun says of it before it ends with exit code 1 (torch 2.15, elastic/multiprocessing).
_SIGNAL = re.compile(r".*SignalException: Process \d+ got signal: 15")
_BROKEN_OFF = "its record breaks off, as after an out-of-memory kill or the loss of its node"


def by_rank(lines: Sequence[str]) -> dict[int, list[str]]:
    """Sort the lines of `meks logs` to their ranks."""
    found: dict[int, list[str]] = {}
    for line in lines:
        if match := _LINE.fullmatch(line):
            found.setdefault(int(match[1]), []).append(match[2])
    return found


def printed(lines: Sequence[str]) -> list[str]:
    """Return the lines that the programs themselves have written."""
    return [each for each in lines if not _OWN.match(each)]


def kept(lines: Sequence[str], kinds: Collection[str]) -> list[Object]:
    """Return what was kept of objects of some kinds, as Kubernetes had them."""
    marked = [each.removeprefix(_OBJECT) for each in lines if each.startswith(_OBJECT)]
    return [each for each in map(json.loads, marked) if each["kind"] in kinds]


def ranks(job: RunningJob | None, there: Sequence[Rank], lines: Sequence[str]) -> list[Rank]:
    """Return a job's ranks, those without a pod as they were kept, or as their logs tell."""
    rows = {rank.number: rank for rank in there}
    were = jobs.ranks(job, kept(lines, {"Pod"}), kept(lines, {"Event"})) if job else []
    before = {rank.number: rank for rank in were if rank.pod is not None}
    told = by_rank(lines)
    for number in sorted({*rows, *before, *told}):
        if number not in rows or rows[number].pod is None:
            rows[number] = _rank(number, before.get(number), told.get(number, ()))
    return [rows[number] for number in sorted(rows)]


def _rank(number: int, before: Rank | None, own: Sequence[str]) -> Rank:
    """Return a rank whose pod is gone, as its pod was seen and as its log ends.

    The log has the better reason, but for one that breaks off; a pod that was last seen running
    tells no end.
    """
    phase = before.pod.phase if before is not None and before.pod is not None else None
    if not own:
        return before if before and phase != "Running" else Rank(number, None, None)
    pod = _pod(own)
    if before is not None and before.manifest is not None:
        # Its node and its events are those of the pod that was seen.
        pod |= {key: before.manifest[key] for key in ("metadata", "spec")}
    if before is None or phase not in jobs.ENDED:
        return Rank(number, pods.state(pod), pod)
    broken_off = not any(map(END.fullmatch, own))
    return before if broken_off else replace(before, pod=pods.state(pod))


def looked(found: Look, lines: Sequence[str]) -> Look:
    """Return a look at a job that has ended, with what the record tells of it."""
    logs = []
    for own in by_rank(lines).values():
        log, begun = run_log.read(own), _begun(own)
        logs.append(replace(log, first_at=datetime.fromisoformat(begun) if begun else None))
    log = run_log.merged([*logs, found.logs.end])
    return replace(found, ranks=ranks(found.job, found.ranks, lines), logs=Logs(log, log))


def gone(plan: JobPlan, namespace: str, lines: Sequence[str], now: datetime) -> Look:
    """Return a look at a job that Kubernetes does not know any more."""
    manifest = {
        "kind": "Job",
        "metadata": {"name": plan.name, "namespace": namespace, "uid": ""},
        "spec": {
            "parallelism": plan.nodes,
            "template": {"spec": {"containers": [{"args": list(plan.args)}]}},
        },
    }
    job = RunningJob(next(iter(kept(lines, WORKLOADS)), manifest))
    there = [Rank(number, None, None) for number in range(plan.nodes)]
    if not job.ended:
        known = ranks(job, there, lines)
        well = {each.pod.phase for each in known if each.pod is not None} == {"Succeeded"}
        told = [*map(_was_ended, by_rank(lines).values())]
        kind = "Complete" if well else "Cancelled" if told and all(told) else "Failed"
        message = "Kubernetes does not know it any more: from its record"
        end = {"type": kind, "status": "True", "message": message}
        job = RunningJob({**job.manifest, "status": {"conditions": [end]}})
    return looked(Look(job, there, (), {}, Logs(), Logs(), now), lines)


def _was_ended(own: Sequence[str]) -> bool:
    """Tell whether the newest start of a rank was told to end, as `meks cancel` does."""
    begun = max((place for place, each in enumerate(own) if START.match(each)), default=0)
    ends = [end for each in own[begun:] if (end := END.fullmatch(each))]
    if not ends or ends[-1][1] == "0":
        return False
    return (ends[-1][1], ends[-1][2]) in _TOLD or any(map(_SIGNAL.match, own[begun:]))


def _pod(own: Sequence[str]) -> Object:
    """Return what a pod's object would tell of how its container ended.

    One that had just started again when its job was given up has its end in the start before.
    """
    ends = [(place, end) for place, each in enumerate(own) if (end := END.fullmatch(each))]
    if len(ends) > 1 and _was_told(ends[-2][1], ends[-1][1]):
        ends.pop()
        own = own[: ends[-1][0]]
    end = ends[-1][1] if ends else None
    begun = _begun(own)
    if end is None:
        ended = {"exitCode": _KILLED, "reason": "Killed", "message": _BROKEN_OFF}
    else:
        code = int(end[1]) if end[1] else _BY_SIGNAL + int(end[2])
        reason = "Error" if code else "Completed"
        message = "it was told to end (SIGTERM)" if _was_ended(own) else end[4] or ""
        ended = {"exitCode": code, "reason": reason, "message": message, "finishedAt": end[3]}
    return {
        "metadata": {"name": "", "uid": "", "creationTimestamp": begun},
        "spec": {},
        "status": {
            "phase": "Failed" if ended["exitCode"] else "Succeeded",
            "containerStatuses": [
                {"name": CONTAINER, "state": {"terminated": {**ended, "startedAt": begun}}}
            ],
        },
    }


def _was_told(before: re.Match[str], end: re.Match[str]) -> bool:
    """Tell whether a container was told to end soon after the one before it had failed."""
    apart = datetime.fromisoformat(end[3]) - datetime.fromisoformat(before[3])
    return (end[1], end[2]) in _TOLD and apart.total_seconds() < _JUST_SECONDS


def _begun(own: Sequence[str]) -> str:
    """Return when the newest container began; nothing if the record has lost its beginning."""
    return next((found[2] for each in reversed(own) if (found := START.match(each))), "")
