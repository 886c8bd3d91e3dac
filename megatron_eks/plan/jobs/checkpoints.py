"""Saving: how long checkpoints take to write, how often, and the room for them.

What is refused would fail at the best speed of the predicted range; warnings are about the most
likely one.
"""

import re
from datetime import date, datetime, time
from math import ceil

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.cluster import CapacityBlock, ClusterConfig, GpuPool, Spot
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, warning
from megatron_eks.config.job import MegatronRun, Run, TrainingJob
from megatron_eks.config.storage import Lustre
from megatron_eks.plan.cluster.lustre import LustrePlan, size_for
from megatron_eks.plan.cluster.storage import plan_storage
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.resources import gpu_pool, job_gpus
from megatron_eks.plan.jobs.training import changed, checkpoint_bytes, gib, job_speed, steps
from megatron_eks.predict.goodput import Saving, goodput
from megatron_eks.predict.memory import GIB
from megatron_eks.predict.parameters import parameters

_MEGABYTE = 1_000_000
GRACE_FLOOR_SECONDS = 120

_DAY_SECONDS = 24 * 3600
_YEAR_SECONDS = 365 * _DAY_SECONDS
_HOUR_SECONDS = 3600
# EC2 User Guide, "Spot Instance interruption notices": two minutes.
_NOTICE_SECONDS, _SOON_SECONDS = 120, 1800
_LITTLE_SECONDS = 60
# Of the best interval's share of time that counts, and of its length.
_WORTHWHILE, _FAR = 0.9, 4

# bf16 weights of the base model, kept beside the run's own checkpoints.
_BASE_BYTES_PER_PARAMETER = 2

# Megatron makes one such folder an iteration, and finds the newest of them by a file beside them,
# `latest_checkpointed_iteration.txt` (megatron/training/checkpointing.py).
_ITERATION = re.compile(r"iter_\d{7}|global_step\d+")


def plan_saving(job: Run, model: ModelShape, lustre: LustrePlan) -> Saving:
    """Plan how a run saves to a file system."""
    write = lustre.write_mb_s * _MEGABYTE
    checkpoint = job.checkpoint
    return Saving(checkpoint_bytes(job, model), checkpoint.interval, checkpoint.async_save, write)


def save_interval(job: Run, model: ModelShape, instance: InstanceType, lustre: LustrePlan) -> int:
    """Return the iterations between two saves: the file's, or those of which most time counts.

    The latter are rounded up to two digits, and at most the whole run.
    """
    speed = job_speed(job, model, instance)
    if speed is None or "interval" in job.checkpoint.model_fields_set:
        return job.checkpoint.interval
    gpus, saving = job_gpus(job, instance), plan_saving(job, model, lustre)
    best = goodput(job.nodes, gpus, speed.step_seconds, saving).best_interval_steps
    unit: int = 10 ** max(0, len(str(best)) - 2)
    return min(ceil(best / unit) * unit, steps(job)[1])


def grace_seconds(checkpoint_bytes: int, lustre: LustrePlan) -> int:
    """Return how long a pod may take to save once it is told to end."""
    save_seconds = checkpoint_bytes / _MEGABYTE / lustre.write_mb_s
    return max(GRACE_FLOOR_SECONDS, ceil(save_seconds / 60 + 1) * 60)


def check_saving(job: Run, model: ModelShape, pool: GpuPool, cluster: ClusterConfig) -> Findings:
    """Yield checkpoints that come too fast or too seldom, or outlast a collective."""
    instance, lustre = INSTANCES[pool.instance_type], plan_storage(cluster).lustre
    job = changed(job, "checkpoint", interval=save_interval(job, model, instance, lustre))
    saving = plan_saving(job, model, lustre)
    seconds = saving.checkpoint_bytes / saving.write_bytes_per_second
    speed, (key, count) = job_speed(job, model, instance), steps(job)
    step = speed.step_seconds if speed else 0
    yield from _interval(job, instance, saving, step, count)
    if count * step > _YEAR_SECONDS:
        found = f"the run takes about {count * step / _YEAR_SECONDS:.1f} years on these nodes"
        remedy = "count optimizer steps, and not tokens or sequences; or use more nodes"
        yield warning(Code.TAKES_YEARS, ("training", key), found, remedy)
    yield from _spot(job, pool, cluster.storage.lustre, job.checkpoint.interval * step, seconds)
    # Steps of FSDP and DDP are short, and their ranks wait for most of a save.
    if isinstance(job, MegatronRun):
        on_spot = isinstance(pool.capacity, Spot)  # `_spot` says so of any length
        if count * step > _DAY_SECONDS and not (job.runtime.gang_restarts or on_spot):
            found = f"the run takes about {_shown(count * step)}, and a lost rank ends the job"
            place = ("runtime", "gang_restarts")
            yield warning(Code.NO_RESTART, place, found, "use 3, the default")
        minutes = job.runtime.distributed_timeout_minutes
        if not job.checkpoint.async_save and seconds > minutes * 60:
            found = f"{minutes} minutes, and ranks wait about {_shown(seconds)} for a checkpoint"
            remedy = f"use {2 * int(seconds / 60 + 1)}, or checkpoint.async_save: true"
            yield warning(Code.SAVE_TIME, ("runtime", "distributed_timeout_minutes"), found, remedy)


def _spot(
    job: TrainingJob, pool: GpuPool, lustre: Lustre, between: float, seconds: float
) -> Findings:
    # An elastic job goes on with the nodes that are left, from its last checkpoint.
    saved = seconds <= _NOTICE_SECONDS or job.runtime.elastic is not None
    quick = 0 < between <= _SOON_SECONDS and saved
    if not isinstance(pool.capacity, Spot) or job.nodes == 1 or quick:
        return
    found = f"{job.nodes} nodes on spot: EC2 takes one with two minutes' notice, and all restart"
    interval, needed = job.checkpoint.interval, list[str]()
    often = int(interval * _SOON_SECONDS / between) if between else 0
    if between and not saved:
        found += f"; a checkpoint takes about {_shown(seconds)}"
        size = size_for(lustre, ceil(lustre.capacity_gib * seconds / _NOTICE_SECONDS))
        needed.append(f"storage.lustre.capacity_gib: {size}")
    if often and between > _SOON_SECONDS:
        found += f"; {interval} steps between checkpoints take {_shown(between)}"
        needed.append(f"checkpoint.interval: {often} at most")
    change = " with ".join(needed) or "save often: checkpoint.interval"
    yield warning(Code.SPOT_GANG, ("nodes",), found, f"use another kind of capacity, or {change}")


def _interval(
    job: TrainingJob, instance: InstanceType, saving: Saving, step: float, steps: int
) -> Findings:
    interval = job.checkpoint.interval
    if not step or interval > steps:
        return
    is_now = goodput(job.nodes, job_gpus(job, instance), step, saving)
    between, best = is_now.interval_seconds, is_now.best_interval_seconds
    lost = steps * step * (1 - is_now.expected)
    wasteful = is_now.expected < _WORTHWHILE * is_now.best and lost > _LITTLE_SECONDS
    enough = min(is_now.best_interval_steps, steps)
    if wasteful and interval < enough:
        size = f"{saving.checkpoint_bytes / 1e9:.0f} GB"
        found = f"{size} take about {_shown(is_now.save_seconds)} to write, and {interval} steps "
        found += f"about {_shown(between)}: {is_now.expected:.0%} of the time would count"
        yield warning(Code.SAVE_TIME, ("checkpoint", "interval"), found, f"use about {enough}")
    elif between > best and (wasteful or between > max(_HOUR_SECONDS, _FAR * best)):
        found = f"{interval} steps take about {_shown(between)}, and a failure can lose all of them"
        remedy = f"use about {enough}, every {_shown(best)}: saves and failures then cost least"
        yield warning(Code.SAVE_TIME, ("checkpoint", "interval"), found, remedy)


def check_window(job: MegatronRun, cluster: ClusterConfig, today: date) -> Findings:
    """Yield a run that its Capacity Block cannot hold, on a job that has no errors."""
    pool = gpu_pool(job, cluster)
    if pool is None or not isinstance(pool.capacity, CapacityBlock):
        return
    model, instance = model_shape(job.model), INSTANCES[pool.instance_type]
    interval = save_interval(job, model, instance, plan_storage(cluster).lustre)
    speed = job_speed(job, model, instance)
    if speed is None:
        return
    step = speed.step_seconds
    fastest = step * speed.tokens_per_second_per_gpu / speed.high
    # Of today it may still have all.
    ends_at = pool.capacity.ends_at
    left = (ends_at - datetime.combine(today, time.min, ends_at.tzinfo)).total_seconds()
    if left <= 0:
        return  # the cluster file has the finding
    ends = f"the Capacity Block ends within {_shown(left)}"
    if fastest * interval > left:
        found = f"{ends}, and {interval} iterations take {_shown(fastest * interval)} or more"
        often = int(left / fastest)
        remedy = f"use at most {often}" if often else "use more nodes, or a later block"
        remedy += ": nothing would be kept"
        yield Finding(Code.BLOCK_ENDS_FIRST, ("checkpoint", "interval"), found, remedy)
    elif (run := step * job.training.train_iters) > left:
        found = f"{ends}, and {job.training.train_iters} iterations take about {_shown(run)}"
        remedy = "plan the next block: the run goes on from its last checkpoint"
        yield warning(Code.BLOCK_ENDS_FIRST, ("training", "train_iters"), found, remedy)


def _shown(seconds: float) -> str:
    units = (("days", _DAY_SECONDS), ("hours", 3600), ("minutes", 60), ("seconds", 1))
    unit, size = next((each for each in units if seconds >= 2 * each[1]), units[-1])
    return f"{seconds / size:.0f} {unit}"


def check_disk(job: TrainingJob, model: ModelShape, cluster: ClusterConfig) -> Findings:
    """Demand room for one more: a new checkpoint is complete before the oldest goes."""
    if not job.checkpoint.directory.startswith(f"{cluster.storage.lustre.mount_path}/"):
        return  # EFS grows by itself
    checkpoint = checkpoint_bytes(job, model)
    base = parameters(model) * _BASE_BYTES_PER_PARAMETER if job.checkpoint.pretrained else 0
    needed = (job.checkpoint.keep_last + 1) * checkpoint + base
    capacity = cluster.storage.lustre.capacity_gib * GIB
    if needed > capacity:
        found = f"{job.checkpoint.keep_last} checkpoints of {checkpoint / 1e9:.0f} GB, one being "
        found += f"written and base weights take {gib(needed)} GiB of {capacity // GIB}"
        fitting = (capacity - base) // checkpoint - 1
        size = size_for(cluster.storage.lustre, -(-needed // GIB))
        remedy = f"use at most {fitting}, or" if fitting > 0 else "even keep_last: 1 takes more:"
        remedy = f"{remedy} set storage.lustre.capacity_gib: {size}"
        yield Finding(Code.CHECKPOINTS_FILL_DISK, ("checkpoint", "keep_last"), found, remedy)


def check_checkpoint_paths(job: TrainingJob) -> Findings:
    """Yield checkpoint directories that no run finds its checkpoints in, or risks to lose."""
    checkpoint = job.checkpoint
    for name in ("directory", "pretrained"):
        folder, _, last = (getattr(checkpoint, name) or "").rstrip("/").rpartition("/")
        if _ITERATION.fullmatch(last):
            found = f"{folder}/{last} is one checkpoint, not the directory of them"
            yield Finding(Code.WEIGHTS, ("checkpoint", name), found, f"use {folder}")
    if checkpoint.keep_last == 1:
        found = "a checkpoint that cannot be read leaves nothing to go back to"
        yield warning(Code.RETENTION, ("checkpoint", "keep_last"), found, "keep 2 or more")
