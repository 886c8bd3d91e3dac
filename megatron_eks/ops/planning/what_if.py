"""`meks plan JOB --what-if`: what one other decision would do to time and money."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from megatron_eks.catalog.gpus import lacks
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import has_errors
from megatron_eks.config.job import FsdpJob, MegatronRun, TorchRun
from megatron_eks.config.load import Json
from megatron_eks.ops.failure import DONE, no_such
from megatron_eks.ops.output import formatted, step_time, table, usd
from megatron_eks.ops.planning.plan_jobs import takes
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cost import JobCost, job_cost
from megatron_eks.plan.jobs.job import JobPlan, Training
from megatron_eks.plan.jobs.layout import check_layout
from megatron_eks.plan.jobs.pods import plan_training
from megatron_eks.plan.jobs.training import changed
from megatron_eks.project import check_files, job_files, load_project

Run = MegatronRun | TorchRun
Row = tuple[str, Training | None, JobCost | None]

_PRECISIONS = ("bf16", "fp8", "mxfp8", "nvfp4")


def run(cluster: Path, name: str, output: str, today: date) -> int:
    """Print the job as it is and with one change each; raise Failure if no such job trains."""
    project = load_project(cluster, today)
    files = check_files(cluster, job_files(cluster), today)
    runs = {job.name: job for _, job in files.jobs if isinstance(job, MegatronRun | TorchRun)}
    if name not in runs:
        raise no_such(Code.JOB_NOT_FOUND, f"no job that trains is named {name!r}", name, list(runs))
    planned = next(job for job in project.jobs if job.name == name)
    rows = list(_rows(runs[name], planned, project.cluster))
    sys.stdout.write(formatted(output, _lines(rows), lambda: [_as_json(*row) for row in rows]))
    return DONE


def _rows(job: Run, planned: JobPlan, cluster: ClusterPlan) -> Iterator[Row]:
    for change, option in _options(job, cluster):
        instance = cluster.pool(option.pool).instance
        training = None
        if planned.training and not (
            isinstance(option, MegatronRun)
            and has_errors(check_layout(option, planned.training.model, instance))
        ):
            training = plan_training(option, cluster)
        variant = replace(planned, nodes=option.nodes, training=training)
        yield change, training, job_cost(variant, cluster)


def _options(job: Run, cluster: ClusterPlan) -> Iterator[tuple[str, Run]]:
    """Yield the job as it is, then with one decision changed at a time."""
    yield "as it is", job
    pool = cluster.pool(job.pool)
    if isinstance(job, MegatronRun):
        for again in ("none", "selective", "full"):
            if again != job.training.recompute:
                keys: dict[str, object] = {"recompute_method": None, "recompute_layers": None}
                yield f"recompute: {again}", changed(job, "training", recompute=again, **keys)
    else:
        other = not job.training.activation_checkpointing
        word = f"activation_checkpointing: {str(other).lower()}"
        yield word, changed(job, "training", activation_checkpointing=other)
    known = _PRECISIONS if isinstance(job, MegatronRun) else _PRECISIONS[:2]
    for precision in known if isinstance(job, MegatronRun | FsdpJob) else ():
        has = pool.instance.gpu.has_fp8 and not lacks(pool.instance.gpu, precision)
        if precision != job.training.precision and (has or precision == "bf16"):
            yield f"precision: {precision}", changed(job, "training", precision=precision)
    interval = job.checkpoint.interval
    for steps in (max(1, interval // 2), 2 * interval):
        yield f"checkpoint.interval: {steps}", changed(job, "checkpoint", interval=steps)
    for nodes in (job.nodes // 2, 2 * job.nodes):
        if 1 <= nodes <= pool.max_nodes and not job.runtime.elastic:
            yield f"nodes: {nodes}", job.model_copy(update={"nodes": nodes})


def _lines(rows: list[Row]) -> Iterator[str]:
    own = rows[0][2]
    # The row of the job as it is has a layout.
    tokens, *others = (training.tokens for _, training, _ in rows if training is not None)
    cells = []
    for change, training, cost in rows:
        if training is None or training.speed is None:
            cells.append((change, "no layout" if training is None else "", *[""] * 5))
            continue
        memory = training.memory
        share = memory.per_gpu_bytes / memory.capacity_bytes
        difference = ""
        if cost and own and cost.usd is not None and own.usd and change != rows[0][0]:
            difference = f"{cost.usd / own.usd * tokens / training.tokens - 1:+.0%}"
        useful = f"{training.goodput.expected:.1%}" if training.goodput else ""
        step = step_time(training.speed.step_seconds)
        spent = (takes(cost), usd(cost.usd, digits=0)) if cost else ("", "")
        fits = f"{share:.0%}" + " too much" * memory.surely_too_large
        cells.append((change, fits, step, useful, *spent, difference))
    header = ("WHAT IF", "MEMORY", "STEP", "USEFUL", "TAKES", "USD", "")
    yield from table(header, cells, right=range(1, 7))
    yield "One change each, all else as it is. USEFUL: the share of the time that trains."
    if {tokens} != {*others}:
        yield "The same steps on other nodes learn from other numbers of tokens: the last"
        yield "column compares the price of a token."


def _as_json(change: str, training: Training | None, cost: JobCost | None) -> dict[str, Json]:
    found: dict[str, Json] = {"change": change, "possible": training is not None}
    if training is not None and training.speed is not None:
        found["memory_share"] = training.memory.per_gpu_bytes / training.memory.capacity_bytes
        found["step_seconds"] = training.speed.step_seconds
        found["tokens"] = training.tokens
        found["useful"] = training.goodput.expected if training.goodput else None
    if cost is not None:
        found |= {"hours": cost.hours, "usd": cost.usd}
    return found
