"""Memory and speed of a run that no pool and no cluster stands behind."""

from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.prediction import PredictionFile
from megatron_eks.plan.jobs.models import check_meaning, check_model, model_shape
from megatron_eks.plan.jobs.training import copies, run_layout
from megatron_eks.predict.hardware import Hardware
from megatron_eks.predict.layout import Batch, Layout, Recompute, megatron_states, uses_graphs
from megatron_eks.predict.memory import GIB, MemoryEstimate, estimate, tensor_capacity_bytes
from megatron_eks.predict.replicas import estimate_sharded
from megatron_eks.predict.throughput import Speed, fsdp_speed, megatron_speed

# What a driver leaves of the memory that a data sheet names: 98.5 % on A100, 98.9 on H100.
_USABLE = 0.985


@dataclass(frozen=True)
class Prediction:
    """What a run takes, and how fast it is."""

    model: ModelShape
    layout: Layout
    memory: MemoryEstimate
    speed: Speed


def check_prediction(wanted: PredictionFile) -> Iterator[Finding]:
    """Yield what keeps a run from being one: a model without a shape, a layout that is none."""
    spec = _complete(wanted)
    shapeless = list(check_model(spec))
    yield from shapeless
    if shapeless:
        return
    yield from check_meaning(spec)
    model, parallelism = model_shape(spec), wanted.parallelism
    data = copies(parallelism, wanted.gpus)
    path: Path = ("parallelism",)
    if data is None:
        product = f"tensor x pipeline x context = {parallelism.model_gpus}"
        found = f"{product} does not divide {wanted.gpus} GPUs"
        yield Finding(Code.LAYOUT_WORLD, path, found, "change one of them, or gpus")
        return
    stages = parallelism.pipeline * (parallelism.virtual_pipeline or 1)
    if stages > model.num_layers:
        found = f"{stages} stages and chunks, and the model has {model.num_layers} layers"
        remedy = "use at most one for each layer"
        yield Finding(Code.LAYOUT_LAYERS, (*path, "pipeline"), found, remedy)
    if model.num_attention_heads % parallelism.tensor:
        found = f"{parallelism.tensor} does not divide {model.num_attention_heads} attention heads"
        yield Finding(Code.LAYOUT_HEADS, (*path, "tensor"), found, "use a divisor")
    yield from _experts(wanted, model)
    batch = wanted.training.global_batch_size
    step = _micro_batch_size(wanted) * data
    if "global_batch_size" in wanted.training.model_fields_set and batch % step:
        found = f"{batch} is no multiple of micro_batch_size x data parallel size = {step}"
        yield Finding(Code.LAYOUT_BATCH, ("training", "global_batch_size"), found, f"use {step}")


def _experts(wanted: PredictionFile, model: ModelShape) -> Iterator[Finding]:
    parallelism, experts = wanted.parallelism, model.num_experts or 1
    size = parallelism.expert * (parallelism.expert_tensor or parallelism.tensor)
    path: Path = ("parallelism", "expert")
    if experts % parallelism.expert:
        found = f"{parallelism.expert} does not divide {experts} experts"
        yield Finding(Code.LAYOUT_EXPERTS, path, found, "use a divisor")
    elif model.num_experts and (wanted.gpus // parallelism.pipeline) % size:
        found = f"expert x expert tensor = {size} does not divide the GPUs of a stage"
        yield Finding(Code.LAYOUT_EXPERTS, path, found, "use a divisor")
    if model.num_experts and not model.moe_router_topk:
        found = f"each token goes to none of {experts} experts"
        yield Finding(Code.LAYOUT_EXPERTS, ("model",), found, "set moe_router_topk")


def predict(wanted: PredictionFile) -> Prediction:
    """Predict a run that has passed the checks."""
    model, gpu = model_shape(_complete(wanted)), wanted.gpu
    layout = run_layout(wanted.parallelism, wanted.gpus, wanted.extra_args)
    batch = _batch(wanted, layout)
    capacity = tensor_capacity_bytes(int(gpu.memory_gib * GIB * _USABLE))
    hardware = Hardware(
        gpu=gpu.name,
        tflops_bf16=gpu.tflops_bf16,
        tflops_fp8=gpu.tflops_fp8,
        nvlink_gb_s=gpu.nvlink_gb_s,
        network_gb_s_per_gpu=gpu.network_gb_s_per_gpu,
        gpus_per_node=wanted.gpus_per_node,
    )
    if wanted.framework == "megatron":
        memory = estimate(model, layout, batch, capacity, megatron_states(wanted.extra_args))
        return Prediction(model, layout, memory, megatron_speed(model, layout, batch, hardware))
    shards = layout.data * layout.context
    if wanted.training.sharding == "hybrid":
        shards = min(shards, max(1, wanted.gpus_per_node // layout.tensor))
    memory = estimate_sharded(model, batch, capacity, shards=shards, layout=layout)
    return Prediction(model, layout, memory, fsdp_speed(model, layout, batch, hardware))


def savings(wanted: PredictionFile, found: Prediction) -> Iterator[tuple[str, int]]:
    """Yield single changes that take less memory, and how many bytes less, cheapest first."""
    parallelism, training = wanted.parallelism, wanted.training
    changes: list[tuple[str, str, dict[str, object]]] = [
        ("training.micro_batch_size: 1", "training", {"micro_batch_size": 1}),
        ("distributed_optimizer: true", "parallelism", {"distributed_optimizer": True}),
        ("training.sharding: full", "training", {"sharding": "full"}),
    ]
    for name in ("expert", "tensor", "context", "pipeline"):
        twice = 2 * getattr(parallelism, name)
        text = f"parallelism.{name}: {twice}"
        changes.append((text, "parallelism", {name: twice}))
    again: dict[str, object] = {"recompute": "full", "activation_checkpointing": None}
    changes.append(("training.recompute: full", "training", again))
    for text, block, change in changes:
        values = (training if block == "training" else parallelism).model_copy(update=change)
        option = wanted.model_copy(update={block: values})
        if any(True for _ in check_prediction(option)):
            continue
        saved = found.memory.per_gpu_bytes - predict(option).memory.per_gpu_bytes
        if saved > 0:
            yield text, saved


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


def _batch(wanted: PredictionFile, layout: Layout) -> Batch:
    training, micro = wanted.training, _micro_batch_size(wanted)
    given = "global_batch_size" in training.model_fields_set
    return Batch(
        micro_batch_size=micro,
        sequence_length=training.sequence_length,
        microbatches=training.global_batch_size // (micro * layout.data)
        if given
        else layout.pipeline,
        recompute=_recompute(wanted),
        recompute_method=training.recompute_method,
        recompute_layers=training.recompute_layers or 1,
        fp8=training.precision == "fp8",
        graphs=uses_graphs(wanted.extra_args),
    )


def _micro_batch_size(wanted: PredictionFile) -> int:
    return wanted.training.train_batch_size or wanted.training.micro_batch_size


def _recompute(wanted: PredictionFile) -> Recompute:
    if wanted.training.activation_checkpointing is None:
        return wanted.training.recompute
    return "full" if wanted.training.activation_checkpointing else "none"
