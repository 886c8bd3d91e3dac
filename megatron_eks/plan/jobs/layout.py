"""A model's shape, its layout over the GPUs of a job, and the memory that this takes."""

import re
from collections.abc import Sequence
from dataclasses import fields, replace

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.job import MegatronJob, MegatronRun
from megatron_eks.config.training import Parallelism
from megatron_eks.plan.job import MIB
from megatron_eks.predict.hardware import Hardware
from megatron_eks.predict.layout import Batch, Layout, megatron_fsdp, megatron_states, uses_graphs
from megatron_eks.predict.memory import MemoryEstimate, estimate, tensor_capacity_bytes
from megatron_eks.predict.throughput import Speed, megatron_speed

_BITS = 8


# Organizations and releases that Hugging Face's names have around a preset's.
_AROUND = re.compile(r"^meta-|-(hf|base|instruct|v0\.\d)$")


def preset_of_name(name: str) -> str | None:
    """Return the preset of a model by Hugging Face's name, or of a folder that is called so."""
    plain = _AROUND.sub("", name.rpartition("/")[2].lower())
    return plain if plain in PRESETS else None


def model_shape(model: str | ModelSpec) -> ModelShape:
    """Resolve a preset's name, a preset with changes, or a whole mapping.

    Raises KeyError for an unknown preset and TypeError for an incomplete mapping; the checks come
    first and say both in words.
    """
    if isinstance(model, str):
        return PRESETS[model]
    names = {field.name for field in fields(ModelShape)}
    changes = {
        name: value for name, value in model.model_dump(exclude_none=True).items() if name in names
    }
    if model.preset:
        return replace(PRESETS[model.preset], **changes)
    if model.multi_latent_attention:
        # Latent attention has sizes of its own, and a key and a value for every head.
        changes.setdefault("num_query_groups", changes.get("num_attention_heads"))
        changes.setdefault("kv_channels", model.v_head_dim or ModelShape.v_head_dim)
    return ModelShape(**changes)


def job_layout(job: MegatronRun, processes: int) -> Layout:
    """Return the layout of a job over all processes."""
    return run_layout(job.parallelism, processes, _arguments(job))


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
    )


def job_batch(job: MegatronRun, layout: Layout) -> Batch:
    """Return what a step of the job works on."""
    training = job.training
    return Batch(
        micro_batch_size=training.micro_batch_size,
        sequence_length=training.sequence_length,
        microbatches=training.global_batch_size // (training.micro_batch_size * layout.data),
        recompute=training.recompute,
        recompute_method=training.recompute_method,
        recompute_layers=training.recompute_layers or 1,
        fp8=training.precision == "fp8",
        graphs=uses_graphs(_arguments(job)),
    )


def job_memory(
    job: MegatronRun, model: ModelShape, layout: Layout, instance: InstanceType
) -> MemoryEstimate:
    """Estimate the memory of the job's ranks on its pool's GPUs."""
    states, batch = megatron_states(_arguments(job)), job_batch(job, layout)
    return estimate(model, layout, batch, capacity_bytes(instance), states)


def job_speed(
    job: MegatronRun, model: ModelShape, layout: Layout, instance: InstanceType
) -> Speed | None:
    """Predict the steps of a job on its pool; None where the GPU's peak is unknown."""
    found = hardware(instance)
    return megatron_speed(model, layout, job_batch(job, layout), found) if found else None


def _arguments(job: MegatronRun) -> Sequence[str]:
    """Return Megatron's own arguments; a recipe of Megatron-Bridge takes none."""
    return job.extra_args if isinstance(job, MegatronJob) else ()


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
    )


def capacity_bytes(instance: InstanceType) -> int:
    """Return what tensors can have of each GPU."""
    return tensor_capacity_bytes(instance.gpu.usable_memory_mib * MIB)
