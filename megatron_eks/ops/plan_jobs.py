"""The tables of `meks plan` about jobs: what they are, need, reach, take and cost."""

from collections.abc import Iterator, Sequence
from functools import partial

from megatron_eks.ops.output import table, usd
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cost import job_cost
from megatron_eks.plan.jobs.job import JobPlan, Training
from megatron_eks.predict.layout import Layout
from megatron_eks.predict.memory import GIB, OVERHEAD_BYTES, WORKSPACE_BYTES
from megatron_eks.predict.parameters import parameters

_usd = partial(usd, digits=0)
_UNITS = (("d", 24 * 3600), ("h", 3600), ("min", 60))


def job_tables(jobs: Sequence[JobPlan], plan: ClusterPlan) -> Iterator[str]:
    """Yield one line a job; of those that train memory, speed, and what time and money it takes."""
    rows = [
        (
            job.name,
            job.kind,
            _place(job),
            *(_training(job.training) if job.training else ("", "", "")),
        )
        for job in jobs
    ]
    yield from table(("JOB", "KIND", "NODES", "MODEL", "TOKENS", "SAVES"), rows, right=(3, 4, 5))
    yield from _conversions(jobs)
    trained = [(job.name, job.training) for job in jobs if job.training]
    if not trained:
        return
    yield ""
    header = ("GIB PER GPU", "LAYOUT", "WEIGHTS", "OPTIM", "ACTIV", "LOGITS", "SUM", "OF")
    memory = [(name, _layout(training.layout), *_memory(training)) for name, training in trained]
    yield from table(header, memory, right=range(2, 8))
    overhead, workspace = _gib(OVERHEAD_BYTES), _gib(WORKSPACE_BYTES)
    yield f"The fullest stage; weights with gradients; SUM with {workspace} of workspaces;"
    yield f"OF without the {overhead} that CUDA, NCCL and fragments take of a GPU."
    fast = [(name, *_speed(training)) for name, training in trained if training.speed]
    if fast:
        yield ""
        header = ("SPEED", "STEP", "TOKENS/S", "TFLOP/S", "MFU", "LOW", "HIGH", "TAKES")
        yield from table(header, fast, right=range(1, 8))
        yield "Predicted, a GPU; nine of ten runs like these lie between LOW and HIGH."
        yield ""
        yield from _outlook(jobs)
        yield ""
        yield from _costs(jobs, plan)


def _conversions(jobs: Sequence[JobPlan]) -> Iterator[str]:
    rows = [
        (
            job.name,
            _short(found.parameters),
            _gib(found.memory_bytes),
            _gib(found.capacity_bytes),
            f"{_short(found.result_bytes)}B",
            _duration(found.seconds),
        )
        for job in jobs
        if (found := job.conversion)
    ]
    if rows:
        yield ""
        header = ("CONVERSION", "MODEL", "GIB", "OF", "WRITES", "TAKES")
        yield from table(header, rows, right=range(1, 6))
        yield "GIB of the host, OF what a pod may have there; TAKES: about, comparing included."


def _outlook(jobs: Sequence[JobPlan]) -> Iterator[str]:
    found = [
        (job.name, job.training.goodput) for job in jobs if job.training and job.training.goodput
    ]
    header = ("OUTLOOK", "FAILS", "SAVE", "LOSES", "COUNTS", "RANGE")
    rows = [
        (
            name,
            _duration(each.failure_seconds),
            _duration(each.save_seconds),
            _duration(each.lost_seconds),
            f"{each.expected:.1%}",
            f"{each.low:.1%}-{each.high:.1%}",
        )
        for name, each in found
    ]
    yield from table(header, rows, right=range(1, 6))
    yield "FAILS: mean time to a failure, which LOSES so much; SAVE: writing a checkpoint;"
    yield "COUNTS: share of time that does, over the RANGE of published failure rates."
    yield ""
    headings = ("SAVE EVERY", "NOW", "BEST", "ITERATIONS")
    intervals = [
        (
            name,
            _duration(each.interval_seconds),
            _duration(each.best_interval_seconds),
            f"{each.best_interval_steps}",
        )
        for name, each in found
    ]
    yield from table(headings, intervals, right=range(1, 4))
    yield "BEST: of the highest share of time that counts, and in ITERATIONS."


def _costs(jobs: Sequence[JobPlan], plan: ClusterPlan) -> Iterator[str]:
    rows = []
    for job in jobs:
        cost = job_cost(job, plan)
        if cost is None or job.training is None:
            continue
        epochs = job.training.epochs
        rows.append(
            (
                job.name,
                f"{cost.days:.3g}",
                *(_usd(each) for each in (cost.usd_per_hour, cost.cluster_usd_per_hour, cost.usd)),
                "" if cost.usd is None else f"{_usd(cost.usd_low)}-{_usd(cost.usd_high)}",
                _usd(cost.usd_per_billion_tokens),
                "" if epochs is None else f"{epochs:.3g}",
            )
        )
    header = ("COST", "DAYS", "NODES", "REST", "USD", "RANGE", "USD/G", "EPOCHS")
    yield from table(header, rows, right=range(1, 8))
    yield "USD: with failures, of its NODES and the REST of the cluster (an hour each);"
    yield "USD/G: of a billion tokens; EPOCHS: of data.corpus_tokens."


def _place(job: JobPlan) -> str:
    if job.pool is None:
        return "system"
    if not job.gpus:
        return f"{job.pool.name} (CPU)"
    part = job.resources.gpus if job.resources.gpus < job.pool.instance.gpus else None
    return f"{job.nodes} x {job.pool.name}" + (f" ({part} GPUs)" if part else "")


def _training(training: Training) -> tuple[str, str, str]:
    return (
        _short(parameters(training.model)),
        _short(training.tokens),
        f"{_short(training.checkpoint_bytes)}B",
    )


def _short(count: int) -> str:
    """Write a large number with three digits or so."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)


def _layout(layout: Layout) -> str:
    """Write the sizes that are not 1; what remains is data parallel."""
    sizes = {
        "tp": layout.tensor,
        "pp": layout.pipeline,
        "cp": layout.context,
        "ep": layout.expert,
        "dp": layout.data,
    }
    return " ".join(f"{name}{size}" for name, size in sizes.items() if size > 1) or "1 GPU"


def _memory(training: Training) -> tuple[str, ...]:
    memory = training.memory
    stage = memory.fullest
    return (
        _gib(stage.weights_bytes),
        _gib(stage.optimizer_bytes),
        _gib(stage.activations_bytes),
        _gib(stage.logits_bytes),
        _gib(stage.total_bytes),
        f"{_gib(memory.capacity_bytes)} {stage.total_bytes / memory.capacity_bytes:.0%}",
    )


def _speed(training: Training) -> tuple[str, ...]:
    speed = training.speed
    assert speed is not None  # noqa: S101 -- only such a training is asked for
    rate = speed.tokens_per_second_per_gpu
    return (
        f"{speed.step_seconds:.3g} s",
        f"{rate:,.0f}",
        f"{speed.tflops_per_gpu:.0f}",
        f"{speed.mfu:.0%}",
        f"{speed.low:,.0f}",
        f"{speed.high:,.0f}",
        _duration(training.tokens / rate / training.layout.gpus),
    )


def _duration(seconds: float) -> str:
    """Write a time in the largest unit that it fills."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{seconds:.0f} s"


def _gib(count: int) -> str:
    return f"{count / GIB:.1f}"
