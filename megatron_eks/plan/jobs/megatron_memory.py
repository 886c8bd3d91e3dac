"""Whether the ranks of a Megatron run fit into their GPUs, and what would make them."""

from collections.abc import Iterator
from functools import partial

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.megatron_conflicts import TABLE
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, warning
from megatron_eks.config.job import MegatronBridgeJob, MegatronJob, MegatronRun
from megatron_eks.plan.jobs.checkpoints import check_disk
from megatron_eks.plan.jobs.layout import check_layout
from megatron_eks.plan.jobs.memory import check_host, fits, gib, verdict
from megatron_eks.plan.jobs.resources import gpu_pool, gpus_per_node
from megatron_eks.plan.jobs.training import (
    at_fewest_nodes,
    changed,
    checkpoint_bytes,
    job_memory,
    job_speed,
)
from megatron_eks.predict.memory import MemoryEstimate

# From here on docs/parallelism.md divides sequences first, and so many times a size is doubled.
_LONG_SEQUENCE, _DOUBLINGS = 16384, 6


def check_memory(
    job: MegatronRun, model: ModelShape, instance: InstanceType, cluster: ClusterConfig
) -> Iterator[Finding]:
    """Yield whether the ranks of a layout that adds up have room."""
    smallest = at_fewest_nodes(job)
    memory = job_memory(smallest, model, instance)
    pool = gpu_pool(job, cluster)
    remedy = partial(_smaller, smallest, instance, model, pool.max_nodes if pool else None)
    uncounted = _uncounted(job)
    for problem in verdict(memory, instance, ("parallelism",), remedy, job.runtime.elastic):
        if uncounted and problem.level is Level.ERROR:
            found = f"{problem.found}; not counted: {', '.join(uncounted)}"
            yield warning(Code.FITS_TIGHTLY, problem.path, found, "try it on one step first")
        else:
            yield problem
    offloaded = max(stage.host_bytes for stage in memory.stages) * gpus_per_node(job, instance)
    staged = checkpoint_bytes(job, model) // smallest.nodes
    # What an offloaded optimizer has is on the host already: 12 of its 16 bytes are saved.
    yield from check_host(job, instance, max(0, staged - offloaded * 12 // 16), offloaded)
    yield from check_disk(job, model, cluster)


# Settings that change what a GPU holds, and that `megatron_eks/predict` does not follow; by their
# names in Megatron-LM and, in overrides, in Megatron-Bridge.
_UNCOUNTED = frozenset(TABLE["uncounted"].split())
_UNCOUNTED_OF_BRIDGE = _UNCOUNTED | {*TABLE["uncounted_of_bridge"].split()}


def _uncounted(job: MegatronRun) -> list[str]:
    """Return options that move memory in a way that is not planned."""
    if isinstance(job, MegatronBridgeJob):
        names = ((name, name.rpartition(".")[2]) for name in job.overrides)
        return [name for name, setting in names if setting in _UNCOUNTED_OF_BRIDGE]
    words = (word.partition("=")[0] for word in job.extra_args if word.startswith("--"))
    return [word for word in words if OPTIONS.get(word) in _UNCOUNTED]


def _smaller(
    job: MegatronRun, instance: InstanceType, model: ModelShape, most_nodes: int | None
) -> str:
    """Name the single changes that would fit, cheapest in speed first; or those that save most."""
    needed = job_memory(job, model, instance).per_gpu_bytes
    saving: list[tuple[int, str, bool]] = []
    for name, option in _options(job, instance, model):
        memory = _memory(option, model, instance)
        if memory and memory.per_gpu_bytes < needed:
            saving.append((needed - memory.per_gpu_bytes, name, fits(memory)))
    fitting = [f"{name} ({gib(saved)} less)" for saved, name, enough in saving if enough]
    if fitting:
        return f"use {' or '.join(fitting[:3])}"
    for name, option in _pairs(job, instance):
        memory = _memory(option, model, instance)
        if memory and fits(memory):
            return f"use {name} ({gib(needed - memory.per_gpu_bytes)} less)"
    if more := _more(job, instance, model, most_nodes):
        return more
    most = sorted(saving, reverse=True)[:3]
    words = ", ".join(f"{name} ({gib(saved)} less, not enough)" for saved, name, _ in most)
    return f"use more GPUs, a larger type, or pipeline stages{f': {words}' if words else ''}"


def _memory(job: MegatronRun, model: ModelShape, instance: InstanceType) -> MemoryEstimate | None:
    """Estimate what a layout takes; None of one that does not add up."""
    # Where embedding and loss count as layers, a stage may hold no other: nobody proposes that.
    if job.parallelism.pipeline > model.num_layers or any(check_layout(job, model, instance)):
        return None
    return job_memory(job, model, instance)


def _more(
    job: MegatronRun, instance: InstanceType, model: ModelShape, most_nodes: int | None
) -> str | None:
    """Name the fewest nodes that suffice, with a change of the layout if need be."""
    key = "runtime.elastic.min_nodes" if job.runtime.elastic else "nodes"
    for nodes in (job.nodes << power for power in range(1, _DOUBLINGS)):
        larger = job.model_copy(update={"nodes": nodes})
        pairs = _pairs(larger, instance)
        for name, option in (("", larger), *_options(larger, instance, model), *pairs):
            memory = _memory(option, model, instance)
            if memory and fits(memory):
                words = f" with {name.replace(' with ', ' and ')}" if name else ""
                raised = ""
                if most_nodes is not None and nodes > most_nodes:
                    raised = f", for which the pool needs max_nodes: {nodes}"
                return f"use {key}: {nodes}{words}{raised}; or a larger type"
    return None


def _options(
    job: MegatronRun, instance: InstanceType, model: ModelShape
) -> Iterator[tuple[str, MegatronRun]]:
    parallelism, training = job.parallelism, job.training
    if training.micro_batch_size > 1:
        yield "training.micro_batch_size: 1", changed(job, "training", micro_batch_size=1)
    if not parallelism.distributed_optimizer:
        option = changed(job, "parallelism", distributed_optimizer=True)
        yield "distributed_optimizer: true", option
    for expert in _doubled(parallelism.expert, model.num_experts or 0):
        yield f"parallelism.expert: {expert}", changed(job, "parallelism", expert=expert)
    precise = "--use-precision-aware-optimizer"
    takes_options = isinstance(job, MegatronJob) and parallelism.distributed_optimizer
    if takes_options and precise not in job.extra_args:
        option = job.model_copy(update={"extra_args": (*job.extra_args, precise)})
        yield f"extra_args: [{precise}]", option
    for tensor in _doubled(parallelism.tensor, instance.gpus):
        option = changed(job, "parallelism", tensor=tensor, sequence_parallel=True)
        yield f"parallelism.tensor: {tensor}", option
    yield from _divided(job, instance, model)
    if training.recompute != "full":
        yield "training.recompute: full", changed(job, "training", recompute="full")


def _doubled(size: int, most: int) -> Iterator[int]:
    """Yield twice a size, and so on."""
    while (size := size * 2) <= most:
        yield size


def _divided(
    job: MegatronRun, instance: InstanceType, model: ModelShape
) -> Iterator[tuple[str, MegatronRun]]:
    """Yield the least context that suffices: docs/parallelism.md has it before recomputation."""
    if job.training.sequence_length < _LONG_SEQUENCE:
        return
    for context in (job.parallelism.context << power for power in range(1, _DOUBLINGS)):
        option = changed(job, "parallelism", context=context)
        memory = _memory(option, model, instance)
        if memory and fits(memory):
            yield f"parallelism.context: {context}", option
            return


def _pairs(job: MegatronRun, instance: InstanceType) -> Iterator[tuple[str, MegatronRun]]:
    """Yield two changes at once, for where one does not do: sequences first, then the layers.

    The order is that of docs/parallelism.md: context before stages, and the fewest of either.
    """
    parallelism = job.parallelism
    long = job.training.sequence_length >= _LONG_SEQUENCE
    tensors = [parallelism.tensor, *_doubled(parallelism.tensor, instance.gpus)]
    for key in ("context", "pipeline") if long else ("pipeline",):
        for size in (getattr(parallelism, key) << power for power in range(1, _DOUBLINGS)):
            for tensor in tensors:
                words = [f"parallelism.tensor: {tensor}"] * (tensor != parallelism.tensor)
                words.append(f"parallelism.{key}: {size}")
                sizes = {"tensor": tensor, key: size, "sequence_parallel": True}
                yield " with ".join(words), changed(job, "parallelism", **sizes)


_HIDES_IT = "--overlap-moe-expert-parallel-comm"


def check_expert_placement(
    job: MegatronRun, model: ModelShape, instance: InstanceType
) -> Iterator[Finding]:
    """Warn of experts that leave a node only because each of them is divided too.

    Megatron-LM, megatron/core/transformer/moe/README.md, guideline 2: keep both inside NVLink.
    Experts follow tensor parallelism unless the job says otherwise, and their ranks stand side by
    side: megatron/core/parallel_state.py, order tp-cp-ep-dp-pp.
    """
    expert, divided = job.parallelism.expert, job.parallelism.expert_tensor
    each = divided or job.parallelism.tensor
    node = gpus_per_node(job, instance)
    hidden = isinstance(job, MegatronJob) and _HIDES_IT in job.extra_args
    if each == 1 or not 1 < expert <= node < expert * each or hidden:
        return
    whole = changed(job, "parallelism", expert_tensor=1)
    if not fits(job_memory(whole, model, instance)):
        return
    own, other = job_speed(job, model, instance), job_speed(whole, model, instance)
    if own and other and other.step_seconds >= own.step_seconds:
        return  # what the plan itself predicts to be slower is no advice
    follows = "" if divided else ", as parallelism.tensor"
    found = (
        f"{expert} ranks for experts, each divided over {each}{follows}: {expert * each} ranks "
        f"exchange tokens between nodes of {node} GPUs"
    )
    remedy = f"set parallelism.expert_tensor: 1, and the {expert} stay on one node's NVLink"
    path = ("parallelism", "expert_tensor" if divided else "expert")
    yield warning(Code.EXPERTS_ACROSS_NODES, path, found, remedy)
