"""What `meks plan` says of jobs: a row for each, and of one of them all of it."""

from collections.abc import Iterator, Sequence
from functools import partial

from megatron_eks.config.messages import paragraph
from megatron_eks.ops.output import count, step_time, table, usd
from megatron_eks.ops.planning.plan_json import SIZES
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cost import JobCost, job_cost
from megatron_eks.plan.jobs.job import ARCHIVE, JobPlan, Training
from megatron_eks.plan.jobs.queue import placement
from megatron_eks.plan.jobs.resources import Resources
from megatron_eks.predict.goodput import Goodput
from megatron_eks.predict.memory import GIB, OVERHEAD_BYTES, MemoryEstimate
from megatron_eks.predict.parameters import parameters
from megatron_eks.predict.throughput import Speed

_HOUR_SECONDS = 3600
_UNITS = (("d", 24 * _HOUR_SECONDS), ("h", _HOUR_SECONDS), ("min", 60))
_LITTLE = 0.005

_usd = partial(usd, digits=0)


def job_rows(jobs: Sequence[JobPlan], plan: ClusterPlan) -> Iterator[str]:
    """Yield a table with one row for each job."""
    header = ("JOB", "NODES", "MEMORY", "STEP", "MFU", "TAKES", "USD")
    rows = [(job.name, _place(job), *_outcome(job, plan)) for job in jobs]
    yield from table(header, rows, right=range(2, 7))
    yield "MEMORY: share of the fullest GPU's memory (conversions: of the host's)."
    yield "Predicted; TAKES and USD include saves and failures."


def _outcome(job: JobPlan, plan: ClusterPlan) -> tuple[str, ...]:
    if (found := job.conversion) is not None:
        share = found.memory_bytes / found.capacity_bytes
        return f"{share:.0%}", "", "", _duration(found.seconds), ""
    if job.training is None:
        return ("unknown" if job.estimated else "",) * 5
    memory, speed, cost = job.training.memory, job.training.speed, job_cost(job, plan)
    return (
        f"{memory.per_gpu_bytes / memory.capacity_bytes:.0%}",
        step_time(speed.step_seconds) if speed else "",
        f"{speed.mfu:.0%}" if speed else "",
        takes(cost) if cost else "",
        _usd(cost.usd) if cost else "",
    )


def takes(cost: JobCost) -> str:
    """Write how long a run takes."""
    return _duration(cost.hours * _HOUR_SECONDS)


def job_details(job: JobPlan, plan: ClusterPlan) -> Iterator[str]:
    """Yield all that is known of one job."""
    gpus = f", {job.gpus} x {job.pool.instance.gpu.name}" if job.pool and job.gpus else ""
    yield f"{job.name}: {job.kind} on {_place(job)}{gpus}"
    yield ""
    yield from labelled("Image", job.image.uri)
    yield from labelled("Each pod", _pod(job.resources))
    if job.queue_labels:
        yield from labelled("Queue", f"{job.queue}, where it waits until all of its pods fit")
    if place := placement(job):
        yield from labelled("Placed", place.why)
    if size := len(job.files.get(ARCHIVE, "")):
        yield from labelled("Code", f"{-(-size // 1024)} KiB, packed, in the job's own file")
    elif uri := job.files.get(f"{ARCHIVE}.s3"):
        yield from labelled("Code", f"{uri!s}, where meks submit puts it")
    if job.estimated:
        yield from labelled("Predicted", job.estimated)
    if (found := job.conversion) is not None:
        used, whole = _gib(found.memory_bytes), _gib(found.capacity_bytes)
        yield from labelled("Model", f"{_short(found.parameters)} parameters")
        yield from labelled("Memory", f"{used} GiB of the {whole} that a pod may use on the host")
        yield from labelled("Writes", f"{_short(found.result_bytes)}B")
        yield from labelled("Takes", f"about {_duration(found.seconds)}, with the comparison")
    if job.training is not None:
        yield from _training(job.training, job_cost(job, plan))


def _training(training: Training, cost: JobCost | None) -> Iterator[str]:
    epochs = "" if training.epochs is None else f", {training.epochs:.3g} epochs of its corpus"
    yield from labelled("Model", f"{_short(parameters(training.model))} parameters")
    yield from labelled("Tokens", f"{_short(training.tokens)}{epochs}")
    # What remains of sizes that are not shown is data parallel.
    sizes = ((name, getattr(training.layout, name)) for name in SIZES)
    layout = ", ".join(f"{name} {size}" for name, size in sizes if size > 1)
    yield from labelled("Layout", layout or "1 GPU")
    yield ""
    yield from memory_lines(training.memory)
    if training.speed is not None:
        yield ""
        yield from speed_lines(training.speed)
    yield ""
    if cost is not None:
        yield from labelled("Takes", takes(cost))
        yield from labelled("Costs", _cost(cost))
    size = f"{_short(training.checkpoint_bytes)}B"
    if training.goodput is None:
        yield from labelled("Saves", f"{size} each")
    else:
        yield from _goodput(training.goodput, size)


def _cost(cost: JobCost) -> str:
    if cost.usd is None:
        return "unknown: a price is not known"
    return (
        f"{_usd(cost.usd)} USD (likely {_usd(cost.usd_low)} to {_usd(cost.usd_high)}), or "
        f"{_usd(cost.usd_per_billion_tokens)} for a billion tokens: "
        f"{usd(cost.usd_per_hour)} an hour for its nodes, "
        f"{usd(cost.cluster_usd_per_hour)} for the rest of the cluster"
    )


def _goodput(found: Goodput, size: str) -> Iterator[str]:
    useful = f"{found.expected:.1%} of the time trains"
    rates = f"{found.low:.1%} to {found.high:.1%} over published failure rates"
    yield from labelled("Useful", f"{useful} ({rates})")
    mean, lost = _duration(found.failure_seconds), _duration(found.lost_seconds)
    yield from labelled("Failures", f"one in {mean}, each of which loses {lost}")
    best = _duration(found.best_interval_seconds)
    interval = f"every {_duration(found.interval_seconds)}; best every {best}"
    saves = f"{size} in {_duration(found.save_seconds)}, {interval}"
    yield from labelled("Saves", f"{saves} ({found.best_interval_steps} iterations)")


def memory_lines(memory: MemoryEstimate) -> Iterator[str]:
    """Yield what a run uses of each GPU, by pipeline stage."""
    parts = ("weights", "optimizer", "activations", "logits", "total")
    rows = [
        (
            str(stage.stage),
            *(_gib(getattr(stage, f"{part}_bytes")) for part in parts),
            _gib(memory.capacity_bytes),
        )
        for stage in memory.stages
    ]
    header = ("STAGE", "WEIGHTS", "OPTIMIZER", "ACTIVATIONS", "LOGITS", "SUM", "OF")
    yield from table(header, rows, right=range(7))
    overhead = _gib(OVERHEAD_BYTES)
    yield f"GiB per GPU; OF without the {overhead} that CUDA, NCCL and fragments take of it."
    if host := max(stage.host_bytes for stage in memory.stages):
        yield f"The offloaded optimizer takes {_gib(host)} GiB more of the host's memory a GPU."


def speed_lines(speed: Speed) -> Iterator[str]:
    """Yield how fast a run is, and where the time of a step goes."""
    parts = (
        ("computes", speed.compute_seconds),
        ("sends", speed.communication_seconds),
        ("waits for kernels to start", speed.launch_seconds),
        ("waits in the pipeline", speed.bubble_seconds),
        ("optimizer", speed.optimizer_seconds),
    )
    yield from labelled("Step", step_time(speed.step_seconds))
    shares = (
        f"{name} {part / speed.step_seconds:.0%}"
        for name, part in parts
        if part > _LITTLE * speed.step_seconds or name != "waits for kernels to start"
    )
    yield from labelled("", ", ".join(shares))
    likely = f"most likely {speed.low:,.0f} to {speed.high:,.0f}"
    yield from labelled("Tokens/s", f"{speed.tokens_per_second_per_gpu:,.0f} a GPU, {likely}")
    rows = speed.measured_rows
    runs = (
        f"{rows} published run{'s' * (rows != 1)} like it" if rows else "no published run like it"
    )
    yield from labelled("", f"the range comes from {runs} that nothing was fitted to")
    yield from labelled("TFLOP/s", f"{speed.tflops_per_gpu:.0f} a GPU, MFU {speed.mfu:.1%}")


def labelled(label: str, text: str) -> list[str]:
    """Write a text beside its label, within 80 columns."""
    return paragraph(text, f"{label:<11}", " " * 11)


def _pod(resources: Resources) -> str:
    parts = (
        (f"{resources.cpu_millis / 1000:g}", "CPUs", resources.cpu_millis),
        (f"{resources.memory_mib / 1024:,.0f}", "GiB of memory", resources.memory_mib),
        (str(resources.gpus), "GPUs", resources.gpus),
        (str(resources.efa), "EFA interfaces", resources.efa),
    )
    return ", ".join(f"{size} {name}" for size, name, number in parts if number)


def _place(job: JobPlan) -> str:
    if job.pool is None:
        return "system"
    if not job.gpus:
        return f"{job.pool.name} (CPU)"
    part = job.resources.gpus if job.resources.gpus < job.pool.instance.gpus else None
    return f"{job.nodes} x {job.pool.name}" + (f" ({count(part, 'GPU')})" if part else "")


def _short(number: int) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def _duration(seconds: float) -> str:
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.{0 if seconds >= 10 * size else 1}f} {unit}"
    return f"{seconds:.0f} s"


def _gib(number: int) -> str:
    return f"{number / GIB:.1f}"
