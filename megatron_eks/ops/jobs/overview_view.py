"""What `meks status` prints of a cluster: lines for people, plain values for programs."""

from collections.abc import Iterator
from dataclasses import asdict

from megatron_eks.config.load import Json
from megatron_eks.ops.jobs import node_view
from megatron_eks.ops.jobs.overview import JobState, Overview
from megatron_eks.ops.jobs.status_view import SCHEMA_VERSION, time_text
from megatron_eks.ops.jobs.watching import View, fitted
from megatron_eks.ops.output import table


def view(found: Overview) -> View:
    """Return it in all forms; a cluster never ends."""
    return View(
        lines=lambda: lines(found),
        screen=lambda rows: list(fitted([], [lines(found)], rows)),
        news=lambda: news(found),
        as_json=lambda: as_json(found),
        time=f"{found.now:%H:%M:%S}",
        ended=False,
    )


def lines(found: Overview) -> Iterator[str]:
    """Yield all of it."""
    yield f"Cluster {found.cluster}, Kubernetes {found.kubernetes}"
    yield ""
    rows = [
        (each.pool or "-", *map(str, (each.nodes, each.ready, each.gpus, each.free_gpus)))
        for each in found.pools
    ]
    yield from table(("POOL", "NODES", "READY", "GPUS", "FREE"), rows, right=(1, 2, 3, 4))
    yield ""
    if found.jobs:
        shown = [
            (
                each.name,
                each.phase,
                f"{each.running}/{each.ranks}",
                str(each.restarts),
                str(each.progress or ""),
            )
            for each in found.jobs
        ]
        yield from table(("JOB", "PHASE", "RUN", "RESTARTS", "STEP"), shown, right=(2, 3))
    else:
        yield "No jobs."
    for each in found.jobs:
        yield from (f"{each.name}, {wait.line}" for wait in each.waits_for)
    if found.nodes is not None:
        yield ""
        yield from node_view.lines(found.nodes)
    if found.not_ready:
        yield ""
        yield "Not ready:"
        yield from found.not_ready


def news(found: Overview) -> Iterator[tuple[str, str]]:
    """Yield what may change: what it is known by, and a line."""
    for pool in found.pools:
        text = f"pool {pool.pool or '-'}: {pool.ready} of {pool.nodes} nodes ready"
        text += f", {pool.free_gpus} of {pool.gpus} GPUs free"
        yield text, text
    for job in found.jobs:
        step = f", step {job.progress}" if job.progress else ""
        text = f"{job.name}: {job.phase}, {job.running} of {job.ranks} ranks run{step}"
        yield text, text
        for wait in job.waits_for:
            yield f"{job.name} {wait}", f"{job.name}, {wait.line}"
    for line in found.not_ready:
        yield line, f"not ready: {line}"


def as_json(found: Overview) -> dict[str, Json]:
    """Return it as plain values; docs/schemas/status.json says which."""
    return {
        "schema_version": SCHEMA_VERSION,
        "at": time_text(found.now),
        "cluster": found.cluster,
        "kubernetes": found.kubernetes,
        "pools": [asdict(each) for each in found.pools],
        "jobs": [_job(each) for each in found.jobs],
        "not_ready": [*found.not_ready],
        **({} if found.nodes is None else {"nodes": node_view.as_json(found.nodes)}),
    }


def _job(job: JobState) -> dict[str, Json]:
    last = job.progress
    step: Json = None
    if last is not None:
        step = {"step": last.step, "steps": last.steps, "loss": last.finite_loss}
    return {
        "name": job.name,
        "phase": job.phase,
        "ranks": job.ranks,
        "running": job.running,
        "restarts": job.restarts,
        "progress": step,
        "waits_for": [asdict(each) for each in job.waits_for],
    }
