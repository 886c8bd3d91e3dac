"""`meks report JOB`: what a run did, why it ended and what it cost, as one page of HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from megatron_eks import __version__
from megatron_eks.catalog import pins
from megatron_eks.diagnosis.diagnose import Diagnosis
from megatron_eks.kubernetes.client import ApiError, Object
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import diagnosis, ended, holdings, starts, status
from megatron_eks.ops.jobs.logs import Options
from megatron_eks.ops.jobs.records import Record
from megatron_eks.ops.jobs.starts import XID, Start
from megatron_eks.ops.jobs.status import State
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.jobs import CONTAINER
from megatron_eks.ops.kube.pods import containers
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.programs import Place
from megatron_eks.ops.support.settings import shown_settings
from megatron_eks.plan.cost import node_price
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.spending import JobSpending, RankTime, hours_between, job_spending
from megatron_eks.project import job_files, read_document

# Of each start: enough to tell what ended it, and for a thousand ranks no more than a page.
_ENDS, _LEAST_ENDS = 4000, 20


@dataclass(frozen=True)
class Report:
    """All that a page tells."""

    state: State
    cause: Diagnosis | None
    """What ended it; None unless it has failed."""
    starts: tuple[Start, ...]
    plan: JobPlan | None
    """Of the job file as it is now, where the run has its values."""
    spending: JobSpending
    xids: tuple[str, ...]
    """Lines in which a driver or a library tells of a broken GPU."""
    settings: str
    """The job file as it is now."""
    versions: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    """What is not known, and why."""

    @property
    def phase(self) -> str:
        """How far it is, in a word."""
        return self.state.look.job.phase(self.state.look.ranks)

    @property
    def begun(self) -> datetime | None:
        """When the first start began."""
        return min((each.begun for each in self.starts if each.begun), default=None)

    @property
    def ended(self) -> datetime | None:
        """When the last start ended; now, while it runs."""
        return max((each.ended for each in self.starts if each.ended), default=None)

    @property
    def seconds(self) -> float:
        """From the one to the other; 0 where nobody knows."""
        return (self.ended - self.begun).total_seconds() if self.begun and self.ended else 0

    @property
    def useful(self) -> float | None:
        """The share of its time in which steps were done that count."""
        if not self.seconds:
            return None
        return min(1.0, sum(each.useful_seconds for each in self.starts) / self.seconds)


def read(place: Place, name: str, on: Opened) -> Report:
    """Gather what the cluster, the record and the files know of a job."""
    client, project = on.client, on.project
    namespace, now = project.cluster.platform.namespace, client.now()
    live = jobs.find(client, namespace, name)
    lines, notes = _record(place, name, on)
    state = status.read(client, project, name, lambda: lines)
    phase = state.look.job.phase(state.look.ranks)
    known = starts.read(lines, phase, now) or (starts.alone(state.look.logs.end),)
    plan = next((each for each in project.jobs if each.name == name), None)
    there = [rank.manifest for rank in state.look.ranks if rank.manifest]
    pods = {each["metadata"]["uid"]: each for each in (*ended.kept(lines, {"Pod"}), *there)}
    spending = _spending(live is not None, name, known, plan, on)
    if on.access.is_local:
        notes = (*notes, "this is a cluster of `meks local up`: nobody is billed for it")
    return Report(
        state=state,
        # What ended earlier starts has not ended a run that goes on, or went well.
        cause=_cause(on, state, lines, known) if phase == "Failed" else None,
        starts=known,
        plan=None if state.no_plan else plan,
        spending=spending,
        xids=tuple(each for each in ended.printed(lines) if XID.search(each)),
        settings=_settings(project.file, name),
        versions=tuple(_versions(on, state, tuple(pods.values()))),
        notes=notes,
    )


def _cause(
    on: Opened, state: State, lines: Sequence[str], known: Sequence[Start]
) -> Diagnosis | None:
    """Explain a job as `meks logs --explain` does: by its last two starts."""
    about = on.client, on.project.cluster, state.look.job.name, Options()
    if lines:
        last = newest(lines, [each.number for each in known][-2:])
        return diagnosis.of_record(*about, last)
    return diagnosis.of_job(*about) if state.look.logs.end.first_at else None


def _record(place: Place, name: str, on: Opened) -> tuple[list[str], tuple[str, ...]]:
    nodes = next((each.nodes for each in on.project.jobs if each.name == name), 1)
    tail = f"--tail={max(_LEAST_ENDS, _ENDS // max(1, nodes))}"
    try:
        record = Record(place, on.project, name, on.console)
        return record.told((*starts.WORDS, tail)), ()
    except (Failure, ApiError) as error:
        return [], (f"its record is not in this report: {error}",)


def newest(lines: Sequence[str], numbers: Sequence[int]) -> list[str]:
    """Return what some starts printed, with what was kept of objects."""
    found, chosen = [], False
    for line in lines:
        if begun := ended.START.search(line):
            chosen = int(begun[1]) in numbers
        if chosen or line.startswith("[object] "):
            found.append(line)
    return found


def _spending(
    lives: bool,  # noqa: FBT001 -- which of two ways
    name: str,
    known: Sequence[Start],
    plan: JobPlan | None,
    on: Opened,
) -> JobSpending:
    pool, now = plan.pool if plan else None, on.client.now()
    if lives:
        (held,) = holdings.read(on.client, on.plan, now, name).jobs
        return job_spending(held.ranks)
    times = [moment for start in known for moment in (start.begun, start.ended) if moment]
    if plan is None or pool is None or not times:
        return job_spending(())
    share = plan.resources.gpus / pool.instance.gpus
    each = node_price(pool.instance.name, pool.capacity.kind, on.plan)
    rank = RankTime(hours_between(min(times), max(times)), share, each, runs=False)
    return job_spending([rank] * plan.nodes)


def _settings(file: Path, name: str) -> str:
    for path in job_files(file):
        value = read_document(path).value
        if isinstance(value, dict) and value.get("name") == name:
            return shown_settings(path.read_text(encoding="utf-8", errors="replace"), set())
    return ""


def _versions(on: Opened, state: State, pods: Sequence[Object]) -> list[tuple[str, str]]:
    images = {
        f"{each.get('image')} {each.get('imageID') or ''}".strip()
        for pod in pods
        for each in containers(pod)
        if each["name"] == CONTAINER
    }
    specs = state.look.job.pod_specs
    images = images or {str(each["containers"][0].get("image", "")) for _, each in specs} - {""}
    kubernetes = on.client.request("GET", "/version")["gitVersion"]
    return [
        *(("image", each) for each in sorted(images)),
        ("megatron-eks, which wrote this", __version__),
        (
            "Megatron-LM in images of this release",
            f"{pins.MEGATRON_LM_TAG}, core {pins.MEGATRON_CORE_VERSION}",
        ),
        ("Kubernetes", str(kubernetes)),
    ]
