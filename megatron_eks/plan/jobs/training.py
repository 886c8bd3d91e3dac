"""A training run on the nodes of its pool: layout, batch, memory, speed and checkpoints."""

from collections.abc import Sequence
from typing import TypeVar

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings
from megatron_eks.config.job import FsdpJob, MegatronJob, MegatronRun, Run, TorchRun, TrainingJob
from megatron_eks.config.training import MegatronTraining, Parallelism
from megatron_eks.plan.jobs.job import MIB
from megatron_eks.plan.jobs.resources import gpus_per_node, job_gpus
from megatron_eks.predict import memory, replicas
from megatron_eks.predict.hardware import Hardware
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.memory import GIB, MemoryEstimate, tensor_capacity_bytes
from megatron_eks.predict.parameters import parameters
from megatron_eks.predict.settings import (
    megatron_fsdp,
    megatron_states,
    pipeline_stages,
    with_arguments,
)
from megatron_eks.predict.throughput import Speed, fsdp_speed, megatron_speed

_BITS = 8

AnyRun = TypeVar("AnyRun", bound=TrainingJob)

# Above this share of a GPU's memory, fragmentation decides whether a run survives.
TIGHT = 0.92


def steps(job: Run) -> tuple[str, int]:
    """Return the key of `training` that counts optimizer steps, and its value."""
    if isinstance(job, MegatronRun):
        return "train_iters", job.training.train_iters
    return "max_steps", job.training.max_steps


def step_tokens(job: Run, gpus: int) -> int:
    """Return the tokens that a step learns from on so many GPUs."""
    if isinstance(job, MegatronRun):
        return job.training.global_batch_size * job.training.sequence_length
    return job.training.train_batch_size * gpus * job.training.sequence_length


def checkpoint_bytes(job: TrainingJob, model: ModelShape) -> int:
    """Return the size of one checkpoint: weights and optimizer."""
    each = memory.CHECKPOINT_BYTES_PER_PARAMETER
    if isinstance(job, TorchRun):
        each = replicas.CHECKPOINT_BYTES_PER_PARAMETER
    return parameters(model) * each


def at_fewest_nodes(job: AnyRun) -> AnyRun:
    """Return the job on the fewest nodes it may have, where each rank holds the most."""
    elastic = job.runtime.elastic
    return job.model_copy(update={"nodes": elastic.min_nodes}) if elastic else job


def changed(job: AnyRun, block: str, **values: object) -> AnyRun:
    """Return the job with other values in one of its blocks."""
    return job.model_copy(update={block: getattr(job, block).model_copy(update=values)})


def job_layout(job: Run, processes: int) -> Layout:
    """Return the layout of a job over all processes; FSDP and DDP divide only the data."""
    if isinstance(job, MegatronRun):
        return run_layout(job.parallelism, processes, arguments(job))
    return Layout(tensor=1, pipeline=1, context=1, data=processes, sequence_parallel=False)


def copies(parallelism: Parallelism, gpus: int) -> int | None:
    """Return how many copies of the model so many GPUs hold; None where some would be left."""
    whole, left = divmod(gpus, parallelism.model_gpus)
    return None if left else whole


def run_layout(parallelism: Parallelism, processes: int, arguments: Sequence[str]) -> Layout:
    """Return the layout over all processes; data parallel size is what remains."""
    return Layout(
        tensor=parallelism.tensor,
        pipeline=parallelism.pipeline,
        context=parallelism.context,
        data=processes // parallelism.model_gpus,
        virtual_pipeline=parallelism.virtual_pipeline or 1,
        # Megatron switches it off by itself where there is nothing to shard.
        sequence_parallel=parallelism.sequence_parallel and parallelism.tensor > 1,
        distributed_optimizer=parallelism.distributed_optimizer,
        expert=parallelism.expert,
        expert_tensor=parallelism.expert_tensor or parallelism.tensor,
        fsdp=megatron_fsdp(arguments),
        stages=pipeline_stages(arguments),
    )


def arguments(job: MegatronRun) -> Sequence[str]:
    """Return Megatron's own arguments; a recipe of Megatron-Bridge takes none."""
    return job.extra_args if isinstance(job, MegatronJob) else ()


def job_memory(job: Run, model: ModelShape, instance: InstanceType) -> MemoryEstimate:
    """Estimate the memory of the job's ranks on its pool's GPUs."""
    if isinstance(job, FsdpJob):
        return sharded_memory(job, model, instance)
    layout, capacity = job_layout(job, job_gpus(job, instance)), capacity_bytes(instance)
    batch = _batch(job, model, layout, hardware(instance))
    if isinstance(job, TorchRun):
        return replicas.estimate_copied(model, batch, capacity, loss="pieces")
    return memory.estimate(model, layout, batch, capacity, megatron_states(arguments(job)))


def sharded_memory(job: TorchRun, model: ModelShape, instance: InstanceType) -> MemoryEstimate:
    """Estimate the memory of a rank that holds a share of the model, as FSDP does."""
    gpus = job_gpus(job, instance)
    shards = gpus_per_node(job, instance) if job.training.sharding == "hybrid" else gpus
    batch, capacity = _batch(job, model, job_layout(job, gpus), None), capacity_bytes(instance)
    return replicas.estimate_sharded(model, batch, capacity, shards=shards, loss="pieces")


def job_speed(job: Run, model: ModelShape, instance: InstanceType) -> Speed | None:
    """Predict the steps of a job on its pool; None where the GPU's peak is unknown."""
    layout, found = job_layout(job, job_gpus(job, instance)), hardware(instance)
    batch = _batch(job, model, layout, found)
    if found is None:
        return None
    # DDP reduces fp32 gradients once, which travels as far as what FSDP gathers and reduces.
    if isinstance(job, TorchRun):
        return fsdp_speed(model, layout, batch, found)
    return megatron_speed(model, layout, batch, found, states=megatron_states(arguments(job)))


def _batch(job: Run, model: ModelShape, layout: Layout, gpu: Hardware | None) -> Batch:
    if isinstance(job, TorchRun):
        return Batch(
            micro_batch_size=job.training.train_batch_size,
            sequence_length=job.training.sequence_length,
            microbatches=1,
            recompute="full" if job.training.activation_checkpointing else "none",
            precision=job.training.precision,
        )
    return megatron_batch(job.training, model, layout, arguments(job), gpu)


def megatron_batch(
    training: MegatronTraining,
    model: ModelShape,
    layout: Layout,
    arguments: Sequence[str],
    gpu: Hardware | None,
) -> Batch:
    """Return what a step of a Megatron run works on, its own arguments counted."""
    batch = Batch(
        micro_batch_size=training.micro_batch_size,
        sequence_length=training.sequence_length,
        microbatches=training.global_batch_size // (training.micro_batch_size * layout.data),
        recompute=training.recompute,
        recompute_method=training.recompute_method,
        recompute_layers=training.recompute_layers or 1,
        precision=training.precision,
        transposed=gpu is None or gpu.generation != "blackwell",
    )
    return with_arguments(batch, model.num_layers, arguments)


def hardware(instance: InstanceType) -> Hardware | None:
    """Return what predictions need of an instance type; None where a GPU's peak is unknown."""
    gpu = instance.gpu
    if gpu.tflops_bf16 is None:
        return None
    return Hardware(
        gpu=gpu.name,
        tflops_bf16=gpu.tflops_bf16,
        tflops_fp8=gpu.tflops_fp8,
        nvlink_gb_s=instance.nvlink_gb_s,
        network_gb_s_per_gpu=instance.network_gbps / _BITS / instance.gpus,
        gpus_per_node=instance.gpus,
        memory_gb_s=gpu.memory_gb_s,
        efa=instance.efa_interfaces > 0,
    )


def capacity_bytes(instance: InstanceType) -> int:
    """Return what tensors can have of each GPU."""
    return tensor_capacity_bytes(instance.gpu.usable_memory_mib * MIB)


def check_elastic(job: MegatronRun, instance: InstanceType) -> Findings:
    """Demand that the layout holds on every number of nodes that a job may shrink to."""
    elastic = job.runtime.elastic
    if elastic is None:
        return
    path = ("runtime", "elastic")
    if job.checkpoint.format != "torch_dist":
        found = f"checkpoints of format {job.checkpoint.format} fit one number of ranks"
        yield Finding(Code.RENDEZVOUS, path, found, "use checkpoint.format: torch_dist")
    training, gpus = job.training, gpus_per_node(job, instance)
    for nodes in range(elastic.min_nodes, elastic.max_nodes + 1):
        data = copies(job.parallelism, nodes * gpus)
        if data is None:
            each = job.parallelism.model_gpus
            found = f"{nodes} nodes have {nodes * gpus} GPUs, and a copy of the model takes {each}"
            remedy = f"use sizes whose product divides a node's {gpus} GPUs, or remove elastic"
            remedy += ": any number of nodes between the bounds may come"
        elif training.global_batch_size % (training.micro_batch_size * data):
            micro = training.micro_batch_size
            found = f"on {nodes} nodes global_batch_size {training.global_batch_size} is no "
            found += f"multiple of micro_batch_size {micro} x data parallel size {data}"
            remedy = "choose a global_batch_size that every number of nodes divides"
        else:
            continue
        yield Finding(Code.RENDEZVOUS, path, found, remedy)
        return


def fits(memory: MemoryEstimate) -> bool:
    """Tell whether a rank fits with room to spare."""
    return memory.per_gpu_bytes <= memory.capacity_bytes * TIGHT


def gib(count: int) -> str:
    """Write bytes in GiB."""
    return f"{count / GIB:.1f}"
