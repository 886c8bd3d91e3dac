"""`meks plan --search`: the fastest layouts of the Megatron jobs, and why a job's own differs."""

import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Level
from megatron_eks.config.job import MegatronRun
from megatron_eks.config.load import Json
from megatron_eks.ops.failure import DONE, no_such
from megatron_eks.ops.output import picked, step_time, structured, table
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.resources import gpu_pool
from megatron_eks.plan.jobs.search import TIE, Candidate, as_job, evaluate, search
from megatron_eks.plan.jobs.training import changed, fits
from megatron_eks.project import check_files, job_files

_BEST = 10
# What a search is there to mend does not keep it from searching.
_MENDED = {
    Code.DOES_NOT_FIT,
    Code.LAYOUT_WORLD,
    Code.LAYOUT_HEADS,
    Code.LAYOUT_LAYERS,
    Code.LAYOUT_BATCH,
    Code.LAYOUT_SEQUENCE,
    Code.LAYOUT_EXPERTS,
    Code.SEQUENCE_PARALLEL,
    Code.TENSOR_PARALLEL_ACROSS_NODES,
}
_NAMES = ("tensor", "pipeline", "virtual_pipeline", "context", "expert")


def run(cluster: Path, name: str, output: str, today: date) -> int:
    """Print the ten best layouts of each Megatron job, or of the one with that name."""
    files = check_files(cluster, job_files(cluster), today)
    errors = [each for each in files.findings if each.level is Level.ERROR]
    if files.config is None or any(each.code not in _MENDED for each in errors):
        raise ConfigError(files.findings)
    known = {job.name: job for _, job in files.jobs if isinstance(job, MegatronRun)}
    jobs = [job for job in known.values() if name in {"", job.name}]
    if not jobs:
        text = f"no Megatron job{f' named {name!r}' if name else ''} beside {cluster}"
        raise no_such(Code.JOB_NOT_FOUND, text, name, known)
    data: dict[str, Json] = {}
    for job in jobs:
        pool = gpu_pool(job, files.config)
        instance = INSTANCES[pool.instance_type] if pool else None
        found = search(job, model_shape(job.model), instance) if instance else []
        data[job.name] = [_as_json(each) for each in found[:_BEST]]
        if output == "table":
            sys.stdout.writelines(f"{line}\n" for line in _lines(job, found, instance))
    if output != "table":
        sys.stdout.write(structured(data, output))
    return DONE


def _lines(
    job: MegatronRun, found: Sequence[Candidate], instance: InstanceType | None
) -> Iterator[str]:
    if instance is None or not found:
        yield f"{job.name}: no layout fits; take more nodes or a type with more memory"
        return
    own = evaluate(job, model_shape(job.model), instance)
    yield f"{job.name}: the best of {len(found)} layouts that fit"
    rows = [_row(str(place), each) for place, each in enumerate(found[:_BEST], start=1)]
    if own is not None:
        rows.append(_row("yours", own))
    header = ("", "TP", "PP", "VP", "CP", "EP", "MICRO", "RECOMPUTE", "STEP", "MFU", "MEMORY")
    yield from table(header, rows, right=(1, 2, 3, 4, 5, 6, 8, 9, 10))
    if own is None:
        yield "Yours is no layout for these GPUs: meks validate says why."
    elif own.memory.per_gpu_bytes > own.memory.capacity_bytes:
        yield "Yours does not fit."
    if own is not None:
        yield from _differences(job, own, found[0], instance)
    if found[0].extra_args:
        yield f"The best needs extra_args: [{', '.join(found[0].extra_args)}]"
    yield f"Layouts within {TIE:.0%} of each other count as equally fast; the simpler comes first."
    yield ""


def _row(place: str, each: Candidate) -> tuple[str, ...]:
    sizes = (str(getattr(each.layout, name)) for name in _NAMES)
    return (
        place,
        *sizes,
        str(each.batch.micro_batch_size),
        each.batch.recompute,
        step_time(each.speed.step_seconds),
        f"{each.speed.mfu:.0%}",
        f"{each.memory.per_gpu_bytes / each.memory.capacity_bytes:.0%}",
    )


# What is written together when one of the sizes changes.
_TOGETHER = (
    ("parallelism", ("tensor",)),
    ("parallelism", ("pipeline", "virtual_pipeline")),
    ("parallelism", ("context",)),
    ("parallelism", ("expert", "expert_tensor")),
    ("training", ("micro_batch_size",)),
    ("training", ("recompute", "recompute_method", "recompute_layers")),
)


def _differences(
    job: MegatronRun, own: Candidate, best: Candidate, instance: InstanceType
) -> Iterator[str]:
    """Say in a line for each setting of the best what it alone would do to the job's own."""
    theirs = as_job(job, best)
    for block, names in _TOGETHER:
        values = {name: getattr(getattr(theirs, block), name) for name in names}
        mine = getattr(getattr(job, block), names[0])
        if (values[names[0]] or 1) == (mine or 1):
            continue
        option = evaluate(changed(job, block, **values), model_shape(job.model), instance)
        words = f"  {block}.{names[0]}: {values[names[0]]} instead of {mine}"
        if option is None:
            yield f"{words}: only together with the others"
        elif not fits(option.memory):
            yield f"{words}: does not fit by itself"
        else:
            faster = own.speed.step_seconds / option.speed.step_seconds - 1
            yield f"{words}: {abs(faster):.1%} {'faster' if faster > 0 else 'slower'} by itself"


def _as_json(each: Candidate) -> Json:
    return {
        "parallelism": picked(each.layout, *_NAMES, "expert_tensor"),
        "extra_args": list(each.extra_args),
        **picked(each.batch, "micro_batch_size", "recompute"),
        **picked(each.speed, "step_seconds", "tokens_per_second_per_gpu", "mfu"),
        **picked(each.memory, "per_gpu_bytes", "capacity_bytes"),
    }
