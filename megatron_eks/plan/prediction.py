"""Memory and speed of a run that no pool and no cluster stands behind."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, has_errors, warning
from megatron_eks.config.prediction import PredictedTraining, PredictionFile
from megatron_eks.plan.jobs.extra_args import unknown_option
from megatron_eks.plan.jobs.layout import Sizes, check_sizes
from megatron_eks.plan.jobs.memory import uncounted_options
from megatron_eks.plan.jobs.models import (
    check_meaning,
    check_model,
    divided_layers,
    model_shape,
)
from megatron_eks.plan.jobs.training import megatron_batch, run_layout
from megatron_eks.predict.hardware import Hardware
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.memory import GIB, MemoryEstimate, estimate, tensor_capacity_bytes
from megatron_eks.predict.replicas import estimate_sharded
from megatron_eks.predict.settings import megatron_states
from megatron_eks.predict.throughput import Speed, fsdp_speed, megatron_speed

# What a driver leaves of the memory that a data sheet names: 98.5 % on A100, 98.9 on H100.
USABLE = 0.985


@dataclass(frozen=True)
class Prediction:
    """What a run takes, and how fast it is."""

    model: ModelShape
    layout: Layout
    memory: MemoryEstimate
    speed: Speed


def check_prediction(wanted: PredictionFile) -> Findings:
    """Yield what keeps a run from being one: a model without a shape, a layout that is none."""
    spec = _complete(wanted)
    shapeless = list(check_model(spec))
    yield from shapeless
    if shapeless:
        return
    yield from check_meaning(spec)
    model, training = model_shape(spec), _training(wanted)
    sizes = Sizes(
        parallelism=wanted.parallelism,
        training=training,
        gpus=wanted.gpus,
        per_node=min(wanted.gpus, wanted.gpus_per_node),
        layers=divided_layers(wanted.extra_args, model),
    )
    findings = check_sizes(sizes, model)
    if wanted.framework == "fsdp":
        # PyTorch takes stages of any size, and knows neither virtual stages nor experts here.
        findings = (each for each in findings if each.code is not Code.LAYOUT_LAYERS)
        for name in ("expert", "expert_tensor", "virtual_pipeline"):
            if (getattr(wanted.parallelism, name) or 1) > 1:
                found = f"{name} of FSDP is not counted"
                remedy = "remove it, or use framework: megatron"
                yield Finding(Code.NO_MEANING, ("parallelism", name), found, remedy)
    yield from findings
    yield from _check_arguments(wanted)


def _check_arguments(wanted: PredictionFile) -> Findings:
    words = wanted.extra_args
    if wanted.framework == "fsdp" and words:
        found, remedy = "arguments of Megatron mean nothing to FSDP", "remove them"
        yield Finding(Code.NO_MEANING, ("extra_args",), found, remedy)
        return
    for place, word in enumerate(words):
        unknown = unknown_option(word, word.partition("=")[0]) if word.startswith("--") else None
        if unknown:
            yield Finding(Code.EXTRA_ARGUMENT, ("extra_args", place), *unknown)
    if uncounted := uncounted_options(words):
        found = f"not counted: {', '.join(uncounted)}"
        yield warning(Code.FITS_TIGHTLY, ("extra_args",), found, "try it on one step first")


def predict(wanted: PredictionFile) -> Prediction:
    """Predict a run that has passed the checks."""
    model, gpu = model_shape(_complete(wanted)), wanted.gpu
    layout = run_layout(wanted.parallelism, wanted.gpus, wanted.extra_args)
    capacity = tensor_capacity_bytes(int(gpu.memory_gib * GIB * USABLE))
    hardware = Hardware(
        gpu=gpu.name,
        tflops_bf16=gpu.tflops_bf16,
        tflops_fp8=gpu.tflops_fp8,
        nvlink_gb_s=gpu.nvlink_gb_s,
        network_gb_s_per_gpu=gpu.network_gb_s_per_gpu,
        gpus_per_node=wanted.gpus_per_node,
        memory_gb_s=gpu.memory_gb_s,
        power=gpu.power_share,
        efa=gpu.efa,
    )
    batch = _batch(wanted, model, layout, hardware)
    if wanted.framework == "megatron":
        states = megatron_states(wanted.extra_args)
        memory = estimate(model, layout, batch, capacity, states)
        speed = megatron_speed(model, layout, batch, hardware, states=states)
        return Prediction(model, layout, memory, speed)
    shards = layout.data * layout.context
    if wanted.training.sharding == "hybrid":
        shards = min(shards, max(1, wanted.gpus_per_node // layout.tensor))
    loss = wanted.training.loss
    memory = estimate_sharded(model, batch, capacity, shards=shards, layout=layout, loss=loss)
    return Prediction(model, layout, memory, fsdp_speed(model, layout, batch, hardware))


def savings(wanted: PredictionFile, found: Prediction) -> Iterator[tuple[str, int]]:
    """Yield single changes that take less memory, and how many bytes less, cheapest first."""
    sizes = ("expert", "tensor", "context", "pipeline")
    changes = {
        "training.micro_batch_size": 1,
        "parallelism.distributed_optimizer": True,
        "training.sharding": "full",
        **{f"parallelism.{name}": 2 * getattr(wanted.parallelism, name) for name in sizes},
        "training.recompute": "full",
    }
    for key, value in changes.items():
        block, _, name = key.partition(".")
        # The other name of recomputation would win.
        change = {name: value} | ({"activation_checkpointing": None} if name == "recompute" else {})
        values = getattr(wanted, block).model_copy(update=change)
        option = wanted.model_copy(update={block: values})
        if has_errors(check_prediction(option)):
            continue
        saved = found.memory.per_gpu_bytes - predict(option).memory.per_gpu_bytes
        if saved > 0:
            yield f"{key}: {str(value).lower()}", saved


def _complete(wanted: PredictionFile) -> str | ModelSpec:
    """Fill in what Megatron-LM derives from other sizes (`validate_args`)."""
    spec = wanted.model
    if isinstance(spec, str) or spec.preset or not (spec.hidden_size and spec.num_attention_heads):
        return spec
    derived = {
        "ffn_hidden_size": 4 * spec.hidden_size,
        "kv_channels": spec.hidden_size // spec.num_attention_heads,
        "num_query_groups": spec.num_attention_heads,
        "max_position_embeddings": wanted.training.sequence_length,
    }
    missing = {name: size for name, size in derived.items() if getattr(spec, name) is None}
    return spec.model_copy(update=missing)


def _batch(wanted: PredictionFile, model: ModelShape, layout: Layout, gpu: Hardware) -> Batch:
    batch = megatron_batch(_training(wanted), model, layout, wanted.extra_args, gpu)
    rank, targets = wanted.training.lora_rank or 0, wanted.training.lora_targets
    return replace(batch, software=wanted.software, lora=rank, lora_targets=targets)


def _training(wanted: PredictionFile) -> PredictedTraining:
    """Return the block in Megatron's names, with a batch of one microbatch for each stage."""
    training, parallelism = wanted.training, wanted.parallelism
    micro = training.train_batch_size or training.micro_batch_size
    changes: dict[str, object] = {"micro_batch_size": micro}
    if "global_batch_size" not in training.model_fields_set:
        data = max(1, wanted.gpus // parallelism.model_gpus)
        changes["global_batch_size"] = 4 * parallelism.pipeline * micro * data
    if training.activation_checkpointing is not None:
        changes["recompute"] = "full" if training.activation_checkpointing else "none"
    return training.model_copy(update=changes)
