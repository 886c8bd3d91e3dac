"""`meks plan --search`: the fastest layouts of the Megatron jobs, and why a job's own differs."""

import math
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Level
from megatron_eks.config.job import MegatronRun
from megatron_eks.ops.failure import DONE, USAGE, no_such
from megatron_eks.ops.output import structured, table
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.resources import gpu_pool
from megatron_eks.plan.jobs.search import Candidate, evaluate, search
from megatron_eks.predict.memory import GIB
from megatron_eks.project import check_files, job_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date
    from pathlib import Path

    from megatron_eks.config.load import Document, Json
    from megatron_eks.project import Files

    Wanted = tuple[Path | None, Path | None]
    """Where to write the best layout's job file, and the figure."""

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


def run(cluster: "Path", name: str, wanted: "Wanted", output: str, today: "date") -> int:
    """Print the ten best layouts of each Megatron job, or of the one with that name."""
    files = check_files(cluster, job_files(cluster), today)
    errors = [each for each in files.findings if each.level is Level.ERROR]
    if files.config is None or any(each.code not in _MENDED for each in errors):
        raise ConfigError(files.findings)
    jobs = [
        (document, job)
        for document, job in files.jobs
        if isinstance(job, MegatronRun) and job.name == (name or job.name)
    ]
    if not jobs:
        known = [job.name for _, job in files.jobs if isinstance(job, MegatronRun)]
        text = f"no Megatron job{f' named {name!r}' if name else ''} beside {cluster}"
        raise no_such(Code.JOB_NOT_FOUND, text, name, known)
    if refused := _refused(len(jobs), wanted):
        sys.stderr.write(f"{refused}\n")
        return USAGE
    data: dict[str, Json] = {}
    for document, job in jobs:
        own, found = _searched(job, files)
        data[job.name] = [_as_json(each) for each in found[:_BEST]]
        if output == "table":
            sys.stdout.writelines(f"{line}\n" for line in _lines(job, own, found))
        if found:
            _write(document, own, found, wanted)
    if output != "table":
        sys.stdout.write(structured(data, output))
    return DONE


def _refused(jobs: int, wanted: "Wanted") -> str | None:
    """Say why the files that are wanted cannot be written."""
    for file in wanted:
        if file and (jobs > 1 or file.exists()):
            return f"name one job, and a file that does not exist: {file}"
    if wanted[1] and not can_draw():
        return "a PNG needs matplotlib: pip install matplotlib"
    return None


def _write(
    document: "Document", own: Candidate | None, found: "Sequence[Candidate]", wanted: "Wanted"
) -> None:
    job, picture = wanted
    if job:
        job.write_text(_text(document, found[0].job), encoding="utf-8")
        sys.stderr.write(f"wrote {job}; check it with: meks validate {job}\n")
    if picture:
        png(found, own, picture)
        sys.stderr.write(f"wrote {picture}\n")


def _searched(job: MegatronRun, files: "Files") -> tuple[Candidate | None, list[Candidate]]:
    pool = gpu_pool(job, files.config) if files.config else None
    if pool is None:
        return None, []
    model, instance = model_shape(job.model), INSTANCES[pool.instance_type]
    return evaluate(job, model, instance), search(job, model, instance)


def _lines(
    job: MegatronRun, own: Candidate | None, found: "Sequence[Candidate]"
) -> "Iterator[str]":
    if not found:
        yield f"{job.name}: no layout fits; take more nodes or a type with more memory"
        return
    yield f"{job.name}: the best of {len(found)} layouts that fit"
    rows = [_row(str(place), each) for place, each in enumerate(found[:_BEST], start=1)]
    if own is not None:
        rows.append(_row("yours", own))
    header = ("", "TP", "PP", "VP", "CP", "EP", "MICRO", "RECOMPUTE", "STEP", "MFU", "MEMORY")
    yield from table(header, rows, right=(1, 2, 3, 4, 5, 6, 8, 9, 10))
    yield _reason(own, found[0])
    yield ""
    yield from drawn(found, own)
    yield "Memory against step time: 1 the fastest, y yours, . one layout, : several."
    yield ""


def _row(place: str, each: Candidate) -> tuple[str, ...]:
    sizes = (str(getattr(each.job.parallelism, name) or 1) for name in _NAMES)
    return (
        place,
        *sizes,
        str(each.job.training.micro_batch_size),
        each.job.training.recompute,
        f"{each.speed.step_seconds:.3g} s",
        f"{each.speed.mfu:.0%}",
        f"{each.memory.per_gpu_bytes / each.memory.capacity_bytes:.0%}",
    )


def _reason(own: Candidate | None, best: Candidate) -> str:
    """Say what costs most of the difference."""
    if own is None:
        return "Yours is no layout for these GPUs: meks validate says why."
    slower = own.speed.step_seconds / best.speed.step_seconds - 1
    if own.memory.per_gpu_bytes > own.memory.capacity_bytes:
        return "Yours does not fit."
    parts = {
        "computing": own.speed.compute_seconds - best.speed.compute_seconds,
        "sending": own.speed.communication_seconds - best.speed.communication_seconds,
        "waiting in the pipeline": own.speed.bubble_seconds - best.speed.bubble_seconds,
        "the optimizer": own.speed.optimizer_seconds - best.speed.optimizer_seconds,
    }
    name, seconds = max(parts.items(), key=lambda part: part[1])
    if slower <= 0 or seconds <= 0:
        return "Yours is as fast as the best."
    return f"Yours takes {slower:.1%} longer, most of all {name}: {seconds:.2g} s more a step."


def _as_json(each: Candidate) -> "Json":
    return {
        "parallelism": {name: getattr(each.job.parallelism, name) or 1 for name in _NAMES},
        "micro_batch_size": each.job.training.micro_batch_size,
        "recompute": each.job.training.recompute,
        "step_seconds": each.speed.step_seconds,
        "tokens_per_second_per_gpu": each.speed.tokens_per_second_per_gpu,
        "mfu": each.speed.mfu,
        "per_gpu_bytes": each.memory.per_gpu_bytes,
        "capacity_bytes": each.memory.capacity_bytes,
    }


def _text(document: "Document", job: MegatronRun) -> str:
    """Write a job's file with another layout; comments are not kept."""
    value = dict(document.value) if isinstance(document.value, dict) else {}
    value["parallelism"] = job.parallelism.model_dump(exclude_defaults=True)
    training = value["training"]
    changed = dict(training) if isinstance(training, dict) else {}
    for name in ("micro_batch_size", "recompute", "recompute_method", "recompute_layers"):
        changed.pop(name, None)
        if (setting := getattr(job.training, name)) is not None:
            changed[name] = setting
    value["training"] = changed
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)


_COLUMNS, _ROWS = 66, 12


def drawn(found: Sequence[Candidate], own: Candidate | None) -> Iterator[str]:
    """Yield a figure of text: `.` a layout, `:` several, `1` the fastest, `y` the job's own."""
    shown = [*found, *([own] if own else [])]
    seconds = [each.speed.step_seconds for each in shown]
    memory = [each.memory.per_gpu_bytes / GIB for each in shown]
    low, span = min(seconds), math.log(max(seconds) / min(seconds)) or 1.0
    top = max(memory)
    grid = [[" "] * _COLUMNS for _ in range(_ROWS)]
    for index, (time, size) in enumerate(zip(seconds, memory, strict=True)):
        column = round(math.log(time / low) / span * (_COLUMNS - 1))
        row = min(_ROWS - 1, int((1 - size / top) * _ROWS))
        free = grid[row][column] == " "
        mark = "." if free else ":"
        if index == 0 or (own and index == len(found)):
            mark = "y" if index == len(found) else "1"
        elif grid[row][column] in "1y":
            continue
        grid[row][column] = mark
    for row, cells in enumerate(grid):
        label = f"{top * (1 - row / _ROWS):.0f}" if row % 4 == 0 else ""
        yield f"{label:>6} |{''.join(cells).rstrip()}"
    yield f"   GiB +{'-' * _COLUMNS}"
    right = f"{max(seconds):.3g} s a step"
    yield f"        {f'{low:.3g} s':<{_COLUMNS - len(right)}}{right}"


def can_draw() -> bool:
    """Tell whether a PNG can be made here."""
    return find_spec("matplotlib") is not None


def png(found: Sequence[Candidate], own: Candidate | None, file: Path) -> None:
    """Write the figure as a PNG, with what a GPU has for tensors."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 -- who asks has it
    from matplotlib.figure import Figure  # noqa: PLC0415 -- likewise
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415 -- likewise

    figure = Figure(figsize=(6.4, 4.2), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(*_places(found), s=10, linewidths=0, label="layouts that fit")
    axes.scatter(*_places(found[:1]), s=120, marker="*", linewidths=0, label="the fastest")
    if own is not None:
        axes.scatter(*_places([own]), s=50, marker="D", linewidths=0, label="the job's own")
    capacity = found[0].memory.capacity_bytes / GIB
    axes.axhline(capacity, color="0.4", linewidth=0.8, linestyle="--", label="a GPU has")
    axes.set(xscale="log", xlabel="seconds a step", ylabel="GiB a GPU", ylim=(0, None))
    axes.xaxis.set_major_formatter(FuncFormatter(_shown))
    axes.xaxis.set_minor_formatter(FuncFormatter(_shown))
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8)
    FigureCanvasAgg(figure)
    # No version in it: the same figure is the same file.
    figure.savefig(file, format="png", metadata={"Software": None})


def _shown(value: float, _: int | None) -> str:
    return f"{value:g}"


def _places(found: Sequence[Candidate]) -> tuple[list[float], list[float]]:
    return (
        [each.speed.step_seconds for each in found],
        [each.memory.per_gpu_bytes / GIB for each in found],
    )
