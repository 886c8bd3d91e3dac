"""`meks status JOB`: how a job does, rank by rank, beside its plan, and what it waits for."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from megatron_eks.config.errors import Finding
from megatron_eks.kubernetes.client import Client
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import NoJob
from megatron_eks.ops.jobs import alarms, ended, expected, pace
from megatron_eks.ops.jobs.alarms import Checkpoint, Restarts
from megatron_eks.ops.jobs.look import Look, look
from megatron_eks.ops.jobs.pace import Pace, Planned
from megatron_eks.ops.jobs.waiting import Around, Wait, waits
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.jobs import Rank, RunningJob
from megatron_eks.programs.run_log import Copies
from megatron_eks.project import Project

_POLL_SECONDS = 2
# PyTorchJob's and Job's words for it, then JobSet's and TrainJob's.
_GIVEN_UP = re.compile("backoff limit|BackoffLimitExceeded|ReachedMaxRestarts|number of restarts")


@dataclass(frozen=True)
class State:
    """All that is known of a job."""

    look: Look
    pace: Pace
    planned: Planned | None
    no_plan: str
    """Why there is no plan to compare it with."""
    checkpoint: Checkpoint
    copies: Copies | None
    """In S3; None where the run has told of none."""
    restarts: Restarts
    waits: tuple[Wait, ...]
    findings: tuple[Finding, ...]


def read(
    client: Client, project: Project, name: str, record: Callable[[], Sequence[str]] = tuple
) -> State:
    """Look at a job. Raises Failure if there is none.

    `record` returns what its ranks have printed, where their pods are gone.
    """
    found = _look(client, project, name, record)
    return of(found, project, expected.why(client, project.jobs, found.job))


def of(found: Look, project: Project, queue: str = "") -> State:
    """Judge what was read of a job, and why it waits in its queue."""
    name = found.job.name
    plan, no_plan = pace.plan_of(project.jobs, found.job)
    speed, predicted = pace.pace(found, plan), pace.planned(plan)
    if not pace.same_batch(speed, predicted):
        plan, predicted = None, None
        no_plan = f"a step of {name} has another number of tokens than its file says now"
        speed = pace.pace(found, None)
    newest = alarms.checkpoint(found)
    around = Around(found.nodes, queue, found.now)
    return State(
        look=found,
        pace=speed,
        planned=predicted,
        no_plan=no_plan,
        checkpoint=newest,
        copies=alarms.copies(found),
        restarts=alarms.restarts(found),
        waits=tuple(waits(found.job, found.ranks, found.events, around)),
        findings=tuple(
            alarms.alarms(found, project.cluster, plan, speed, predicted=predicted, newest=newest)
        ),
    )


def _look(client: Client, project: Project, name: str, record: Callable[[], Sequence[str]]) -> Look:
    namespace = project.cluster.platform.namespace
    try:
        found = look(client, namespace, name)
    except NoJob:
        known = next((each for each in project.jobs if each.name == name), None)
        lines = record() if known else ()
        if known is None or not lines:
            raise
        return ended.gone(known, namespace, lines, client.now())
    if found.job.ended and any(rank.pod is None for rank in found.ranks):
        found = ended.looked(found, record())
    return found


def ranks_of(client: Client, job: RunningJob) -> list[Rank]:
    """Return a job's ranks as they are now."""
    events = client.list("v1", "Event", job.namespace)
    return jobs.ranks(job, jobs.pods_of(client, job), events)


def watched(
    client: Client,
    job: RunningJob,
    seconds: float,
    console: Console,
    done: Callable[[RunningJob | None, Sequence[str]], bool],
) -> bool:
    """Say each change of a job until it is `done`, which is told what it is now and what is said.

    None is one that is gone. A job goes on without us, and a wait of days outlives a lost network.
    """
    said: list[str] = []
    now: RunningJob | None = job

    def look() -> bool:
        nonlocal now
        try:
            now, lines = jobs.find(client, job.namespace, job.name), []
            if now is not None:
                events = client.list("v1", "Event", job.namespace)
                ranks = jobs.ranks(now, jobs.pods_of(client, now), events)
                lines = [summary(now, ranks)]
                lines += [] if now.ended else map(str, waits(now, ranks, events))
        except UnreachableError as error:
            now, lines = now or job, [f"no answer from {error}; trying again"]
        over = done(now, lines)
        for line in lines:
            if line not in said:
                console.say(line)
        said[:] = lines
        return over

    return console.wait(seconds, _POLL_SECONDS, look)


def summary(job: RunningJob, ranks: Sequence[Rank]) -> str:
    """Return one line: phase, and how many ranks run."""
    phase = job.phase(ranks)
    if phase in jobs.ENDED:
        message = job.message()
        if _GIVEN_UP.search(message):
            message = "its ranks failed as often as runtime.gang_restarts allows"
        return f"{job.name}: {phase}{' - ' if message else ''}{message}"
    return f"{job.name}: {phase}, {sum(rank.runs for rank in ranks)} of {len(ranks)} ranks run"
