"""Whether the ranks of a run have room in their GPUs and hosts, and what would make it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from megatron_eks.catalog.instances import INSTANCES, MIB_PER_GIB, InstanceType
from megatron_eks.catalog.megatron_conflicts import TABLE
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.cluster import ClusterConfig, GpuPool
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, Path, warning
from megatron_eks.config.job import (
    MegatronBridgeJob,
    MegatronJob,
    MegatronRun,
    Run,
    TorchRun,
)
from megatron_eks.config.runtime import Elastic
from megatron_eks.config.scalars import as_text
from megatron_eks.plan.jobs import training
from megatron_eks.plan.jobs.checkpoints import check_disk
from megatron_eks.plan.jobs.layout import check_layout
from megatron_eks.plan.jobs.resources import (
    gpu_pool,
    gpus_per_node,
    job_memory_mib,
    memory_limit_mib,
)
from megatron_eks.plan.jobs.search import REDUCED, as_job, search
from megatron_eks.plan.jobs.training import gib
from megatron_eks.predict.memory import GIB, MemoryEstimate

# A process of torch with CUDA, NCCL and its libraries, and one that loads data: both in memory.
_RANK_BYTES, _WORKER_BYTES = 3 * GIB, GIB // 2

# What takes less memory, cheapest in speed first.
_CHANGES = {"train_batch_size": 1, "sharding": "full", "activation_checkpointing": True}
# So many times the nodes are doubled in search of a number that fits.
_DOUBLINGS = 6

# The order of layouts hardly depends on a peak that nobody has published.
_ANY_PEAK = 100.0
# What Megatron takes for a key that is not given.
_UNSAID = {"recompute_method": "uniform", "recompute_layers": 1, "virtual_pipeline": 1}

# Settings that change what a GPU holds, and that `megatron_eks/predict` does not follow; by their
# names in Megatron-LM and, in overrides, in Megatron-Bridge.
_UNCOUNTED = frozenset(TABLE["uncounted"].split())
_UNCOUNTED_OF_BRIDGE = _UNCOUNTED | {*TABLE["uncounted_of_bridge"].split()}


def check_host(job: Run, instance: InstanceType, staged: int, offloaded: int = 0) -> Findings:
    """Compare what a save and the optimizer put into a host's memory with the pod's limit.

    An asynchronous save copies every shard to the host before it is written: torch,
    `distributed/checkpoint/staging.py`, and Megatron-LM, `filesystem_async.py`.
    """
    gpus = gpus_per_node(job, instance)
    limit = job_memory_mib(job, instance) * MIB_PER_GIB**2
    staged = staged if job.checkpoint.async_save else 0
    processes = gpus * (_RANK_BYTES + job.data.num_workers * _WORKER_BYTES)
    surely, total = staged + offloaded, staged + offloaded + processes
    if total <= limit or not surely:
        return
    takes = {"a save stages": staged, "the offloaded optimizer has": offloaded}
    parts = "".join(f" {what} {gib(size)}," for what, size in takes.items() if size)
    found = (
        f"a pod may have {gib(limit)} GiB of host memory, and{parts} ranks and data workers have "
        f"about {gib(processes)}"
    )
    remedy = "use a type with more memory"
    if processes < limit:
        nodes = -(-job.nodes * surely // (limit - processes))
        remedy = f"use nodes: {nodes} or more, or a type with more memory"
    path: Path = ("nodes",)
    gpus = min(gpus, instance.gpus)
    if job.runtime.memory_gib and total <= memory_limit_mib(instance, gpus) * MIB_PER_GIB**2:
        path = ("runtime", "memory_gib")
        remedy = f"use {-(-total // GIB)} or more, or leave it out: it is then the GPUs' share"
    if surely > limit:
        yield Finding(Code.DOES_NOT_FIT, path, found, remedy)
    else:
        yield warning(Code.FITS_TIGHTLY, path, found, remedy)


def verdict(
    memory: MemoryEstimate,
    instance: InstanceType,
    path: Path,
    remedy: Callable[[], str],
    elastic: Elastic | None = None,
) -> Findings:
    """Compare what a rank takes with what its GPU has; a remedy is looked for if one is needed."""
    where = f" at runtime.elastic.min_nodes {elastic.min_nodes}" if elastic else ""
    found = (
        f"{gib(memory.per_gpu_bytes)} GiB a GPU{where}, and {instance.gpu.name} has "
        f"{gib(memory.capacity_bytes)} for tensors"
    )
    if memory.surely_too_large:
        missing = gib(memory.per_gpu_bytes - memory.capacity_bytes)
        found = f"{found}: {missing} are missing ({_breakdown(memory)})"
        yield Finding(Code.DOES_NOT_FIT, path, found, remedy())
    elif memory.per_gpu_bytes / memory.capacity_bytes > training.TIGHT:
        yield warning(Code.FITS_TIGHTLY, path, f"{found} ({_breakdown(memory)})", remedy())


def _breakdown(memory: MemoryEstimate) -> str:
    worst = memory.fullest
    return (
        f"weights and gradients {gib(worst.weights_bytes)}, "
        f"optimizer {gib(worst.optimizer_bytes)}, "
        f"activations {gib(worst.activations_bytes)}, logits {gib(worst.logits_bytes)}, "
        f"workspace {gib(worst.workspace_bytes)}"
    )


def smaller(job: TorchRun, model: ModelShape, pool: GpuPool) -> str:
    """Name the single changes that would fit, cheapest in speed first; or the fewest nodes."""
    instance = INSTANCES[pool.instance_type]
    needed, fitting = training.job_memory(job, model, instance).per_gpu_bytes, []
    # DDP has copies everywhere, and hybrid sharding as many inside a node on any number of nodes.
    words, option = ["kind: fsdp"] * (job.kind == "ddp"), job
    for name, value in _CHANGES.items():
        text = f"training.{name}: {str(value).lower()}"
        alone = training.changed(job, "training", **{name: value})
        if training.fits(less := training.job_memory(alone, model, instance)):
            fitting.append(f"{text} ({_less(needed, less)})")
        words += [text] * (getattr(job.training, name) != value)
        option = training.changed(option, "training", **{name: value})
    if fitting:
        return f"use {' or '.join(fitting)}"
    for nodes in (job.nodes << power for power in range(_DOUBLINGS)):
        larger = option.model_copy(update={"nodes": nodes})
        if training.fits(sharded := training.sharded_memory(larger, model, instance)):
            key = "runtime.elastic.min_nodes" if job.runtime.elastic else "nodes"
            words += [f"{key}: {nodes}"] * (nodes > job.nodes)
            remedy = f"use {' and '.join(words)} ({_less(needed, sharded)})"
            if nodes > pool.max_nodes:
                remedy += f", for which pool {pool.name!r} needs max_nodes: {nodes}"
            return f"{remedy}, or a larger type"
    return "use a shorter training.sequence_length, or a larger type"


def _less(needed: int, option: MemoryEstimate) -> str:
    return f"{gib(needed - option.per_gpu_bytes)} less"


def check_memory(
    job: MegatronRun, model: ModelShape, instance: InstanceType, cluster: ClusterConfig
) -> Findings:
    """Yield whether the ranks of a layout that adds up have room."""
    smallest = training.at_fewest_nodes(job)
    memory = training.job_memory(smallest, model, instance)
    pool = gpu_pool(job, cluster)
    remedy = partial(_other_layout, smallest, instance, model, pool.max_nodes if pool else None)
    uncounted = _uncounted(job)
    for problem in verdict(memory, instance, ("parallelism",), remedy, job.runtime.elastic):
        if uncounted and problem.level is Level.ERROR:
            found = f"{problem.found}; not counted: {', '.join(uncounted)}"
            yield warning(Code.FITS_TIGHTLY, problem.path, found, "try it on one step first")
        else:
            yield problem
    offloaded = max(stage.host_bytes for stage in memory.stages) * gpus_per_node(job, instance)
    staged = training.checkpoint_bytes(job, model) // smallest.nodes
    # What an offloaded optimizer has is on the host already: 12 of its 16 bytes are saved.
    yield from check_host(job, instance, max(0, staged - offloaded * 12 // 16), offloaded)
    yield from check_disk(job, model, cluster)


def _uncounted(job: MegatronRun) -> list[str]:
    if isinstance(job, MegatronBridgeJob):
        names = ((name, name.rpartition(".")[2]) for name in job.overrides)
        return [name for name, setting in names if setting in _UNCOUNTED_OF_BRIDGE]
    return uncounted_options(job.extra_args)


def uncounted_options(extra_args: Sequence[str]) -> list[str]:
    """Return those of Megatron's options that move memory in a way that is not planned."""
    words = (word.partition("=")[0] for word in extra_args if word.startswith("--"))
    return [word for word in words if OPTIONS.get(word) in _UNCOUNTED]


def _other_layout(
    job: MegatronRun, instance: InstanceType, model: ModelShape, most_nodes: int | None
) -> str:
    """Name the layout that fits with the fewest changes, and of those the fastest.

    If none does on these nodes, on the fewest more of them.
    """
    needed = training.job_memory(job, model, instance).per_gpu_bytes
    if instance.gpu.tflops_bf16 is None:
        instance = replace(instance, gpu=replace(instance.gpu, tflops_bf16=_ANY_PEAK))
    for nodes in (job.nodes << power for power in range(_DOUBLINGS)):
        larger = job.model_copy(update={"nodes": nodes})
        found = search(larger, model, instance)
        options = [(_differences(job, as_job(larger, each)), each) for each in found]
        for words, each in sorted(options, key=lambda option: len(option[0])):
            if any(check_layout(as_job(larger, each), model, instance)):
                continue
            less = f" ({gib(needed - each.memory.per_gpu_bytes)} less)"
            if nodes == job.nodes:
                less += f"{_reduced(job, instance, model, needed)}; meks plan --search"
                return f"use {' and '.join(words)}{less} lists other layouts"
            key = "runtime.elastic.min_nodes" if job.runtime.elastic else "nodes"
            more = most_nodes is not None and nodes > most_nodes
            raised = f", for which the pool needs max_nodes: {nodes}" if more else ""
            changes = " and ".join([f"{key}: {nodes}", *words])
            return f"use {changes}{less}{raised}; or a larger type"
    return "use a type with more memory, or a smaller model"


def _reduced(job: MegatronRun, instance: InstanceType, model: ModelShape, needed: int) -> str:
    if not isinstance(job, MegatronJob) or REDUCED in job.extra_args:
        return ""
    option = job.model_copy(update={"extra_args": (*job.extra_args, REDUCED)})
    memory = training.job_memory(option, model, instance)
    saved = gib(needed - memory.per_gpu_bytes)
    return f" or extra_args: [{REDUCED}] ({saved} less)" if training.fits(memory) else ""


def _differences(job: MegatronRun, option: MegatronRun) -> list[str]:
    words = []
    for block in ("parallelism", "training"):
        for key, value in getattr(option, block):
            before = getattr(getattr(job, block), key)
            # Selective recomputation saves nothing with flash attention, and so is as good as none.
            same = (value or _UNSAID.get(key)) == (before or _UNSAID.get(key))
            if not same and {value, before} != {"none", "selective"}:
                words.append(f"{block}.{key}: {'null' if value is None else str(value).lower()}")
    if option.extra_args != job.extra_args:
        words.append(f"extra_args: [{', '.join(map(as_text, option.extra_args))}]")
    return words
