"""Whether the options that a job file adds go together with those that follow from it.

Sources: as in `catalog/megatron_conflicts.py`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from megatron_eks.catalog.allocator import options
from megatron_eks.catalog.megatron_conflicts import ALWAYS, FLEX, NEEDS_EXPERTS
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.job import MegatronJob, MegatronRun
from megatron_eks.config.outputs import is_digest

Option = tuple[str, str, Sequence[str]]
"""As it is written, its setting, and its values."""


def check_combinations(
    job: MegatronJob, model: ModelShape, given: Mapping[int, Option]
) -> Iterator[Finding]:
    """Yield what options, by their places among the arguments, conflict with."""
    settings = {setting for _, setting, _ in given.values()}
    for place, (name, setting, values) in given.items():
        path = ("extra_args", place)
        if setting.startswith(NEEDS_EXPERTS) and model.num_experts is None:
            found = f"{name}: the model has no experts"
            remedy = "remove it, or name a model with num_experts"
            level = Level.ERROR if setting in STOPS_WITHOUT_EXPERTS else Level.WARNING
            yield Finding(Code.NO_MEANING, path, found, remedy, level)
            continue
        conflict = _conflict(job, model, setting, values, settings)
        if conflict:
            reason, remedy = conflict
            mild = conflict == FLEX and is_digest(job.image)
            level = Level.WARNING if mild else Level.ERROR
            yield Finding(Code.OPTION_COMBINATION, path, f"{name}: {reason}", remedy, level)


def _conflict(
    job: MegatronJob,
    model: ModelShape,
    setting: str,
    values: Sequence[str],
    settings: set[str],
) -> tuple[str, str] | None:
    """Say what an option conflicts with, and what to do instead."""
    if setting in ALWAYS:
        return ALWAYS[setting]
    if setting in _NEEDS_WEIGHTS and job.checkpoint.pretrained is None:
        return _NEEDS_WEIGHTS[setting], "remove it"
    return (
        _of_value(job, model, setting, values)
        or _lacks(setting, values, settings)
        or by_plan(job, model, setting)
        or _multiple(job, setting, values)
        or _levels(job, setting, values)
    )


def _of_value(
    job: MegatronJob, model: ModelShape, setting: str, values: Sequence[str]
) -> tuple[str, str] | None:
    """Say what speaks against one value of a setting."""
    if setting == "rope_type" and "yarn" in values and not model.multi_latent_attention:
        return (
            "YaRN is for latent attention alone",
            "remove it, or use model.multi_latent_attention",
        )
    # Megatron asks only for the allocator's old variable, and the plan sets the new one.
    safe = job.runtime.env.get("NCCL_GRAPH_REGISTER") == "0" or not _moves(job)
    if setting == "cuda_graph_impl" and "transformer_engine" in values and not safe:
        reason = (
            "NCCL keeps addresses in graphs, and expandable segments, which the plan sets, move"
        )
        return reason, "set runtime.env.NCCL_GRAPH_REGISTER: '0'"
    if setting == "non_persistent_ckpt_type" and "in_memory" in values:
        return "Megatron has checkpoints in memory for no run yet", "use global or local"
    if setting == "dataloader_type" and "external" in values:
        return "pretrain_gpt.py brings data sets, and no loader of its own", "remove it"
    return None


def _moves(job: MegatronJob) -> bool:
    """Tell whether tensors stand in expandable segments: the plan's choice, and not always."""
    chosen = options(job.runtime.env.get("PYTORCH_ALLOC_CONF", "expandable_segments:True"))
    return chosen.get("expandable_segments") == "True"


def _lacks(setting: str, values: Sequence[str], settings: set[str]) -> tuple[str, str] | None:
    """Say which other option it needs beside it."""
    needs = _NEEDS.get(setting)
    value = next((each for each in values if (setting, each) in _VALUE_NEEDS), None)
    if value is not None:
        needs = _VALUE_NEEDS[setting, value]
    if needs is None or needs in settings or (setting.endswith("_dtype") and "fp32" in values):
        return None
    option = f"--{needs.replace('_', '-')}"
    what = "it takes" if value is None else f"{value} takes"
    return f"{what} {option} beside it", f"add {option}, or remove this one"


# What TransformerConfig refuses without experts, where it takes no notice of most others.
STOPS_WITHOUT_EXPERTS = frozenset(
    {
        *("moe_enable_deepep", "moe_expert_rank_capacity_factor", "moe_latent_size"),
        *("moe_pad_expert_input_to_capacity", "moe_paged_stash", "moe_router_group_topk"),
        *("moe_router_padding_for_fp8", "moe_router_padding_for_quantization"),
        *("moe_single_grouped_bias", "moe_single_grouped_weight"),
    }
)
# An option, and the other one that it cannot be without.
_NEEDS = {
    "optimizer_cpu_offload": "use_precision_aware_optimizer",
    "non_persistent_local_ckpt_dir": "non_persistent_ckpt_type",
    # The first of them ends the run otherwise (megatron/training/checkpointing.py).
    "non_persistent_save_interval": "non_persistent_ckpt_type",
    "replication": "replication_jump",
    "fim_data": "fim_rate",
    "fsdp_manual_registration": "nccl_ub",
    "fp4_param_gather": "fp4",
    "reuse_grad_buf_for_mxfp8_param_ag": "fp8_param_gather",
    "mla_down_proj_fusion": "multi_latent_attention",
    "moe_pad_expert_input_to_capacity": "moe_expert_capacity_factor",
    "moe_single_grouped_weight": "use_transformer_engine_op_fuser",
    "logits_save_dir": "logits_save_top_k",
    "hybrid_context_parallel": "calculate_per_token_loss",
    # TransformerConfig and OptimizerConfig of Megatron core take them together only.
    **dict.fromkeys(
        ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"),
        "use_precision_aware_optimizer",
    ),
}
# The same of one of its values.
_VALUE_NEEDS = {
    ("cp_comm_type", "a2a+p2p"): "hierarchical_context_parallel_sizes",
    ("experimental_attention_variant", "gated_delta_net"): "linear_attention_freq",
    ("fp4_recipe", "custom"): "fp4_quantizer_factory",
    ("fp8_recipe", "custom"): "fp8_quantizer_factory",
    ("non_persistent_ckpt_type", "local"): "non_persistent_local_ckpt_dir",
}
# Of one stage TransformerConfig finds layers left, and no stage for them.
_OF_A_PIPELINE = frozenset(
    {"decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"}
)
# What validate_args and OptimizerConfig refuse where each rank has the whole optimizer.
_OF_SHARDED_OPTIMIZER = frozenset(
    {"fp8_param_gather", "overlap_param_gather", "use_precision_aware_optimizer"}
)
# What a random start, without weights to read, cannot be with.
_NEEDS_WEIGHTS = {
    "perform_initialization": "weights would be whatever the memory held",
    "exit_on_missing_checkpoint": "there is no checkpoint at the first start, and it ends there",
}


def by_plan(job: MegatronRun, model: ModelShape, setting: str) -> tuple[str, str] | None:
    """Say what a setting does not go with of what the job file says."""
    parallelism, training = job.parallelism, job.training
    sharded = parallelism.sequence_parallel and parallelism.tensor > 1
    offloading = setting.startswith("cpu_offloading")
    split = max(parallelism.tensor, parallelism.pipeline, parallelism.context, parallelism.expert)
    cases = (
        (
            setting == "use_torch_fsdp2" and (parallelism.distributed_optimizer or split > 1),
            ("it shards by itself, and over all GPUs", "use kind: fsdp"),
        ),
        (
            setting in _OF_SHARDED_OPTIMIZER and not parallelism.distributed_optimizer,
            ("it needs the distributed optimizer", "set parallelism.distributed_optimizer: true"),
        ),
        (
            setting == "lr_warmup_fraction" and training.warmup_iters > 0,
            ("training.warmup_iters is set", "remove one of the two"),
        ),
        (
            setting == "save_params_interval" and parallelism.distributed_optimizer,
            ("parameters are gathered while it computes", "remove it"),
        ),
        (
            setting == "fp8_param_gather" and training.precision != "fp8",
            ("weights are not kept in FP8", "set training.precision: fp8"),
        ),
        (
            setting == "fp8_recipe" and training.precision != "fp8",
            ("nothing is computed in FP8", "set training.precision: fp8, or remove it"),
        ),
        (
            setting in _OF_A_PIPELINE and parallelism.pipeline == 1,
            ("there are no stages to divide the layers over", "remove it"),
        ),
        (
            setting == "hierarchical_context_parallel_sizes" and parallelism.context == 1,
            ("no sequence is divided", "set parallelism.context, or remove it"),
        ),
        (
            setting == "fp4" and training.precision == "fp8",
            ("FP4 and FP8 are two precisions", "set training.precision: bf16"),
        ),
        (
            setting == "tp_comm_overlap" and parallelism.tensor == 1,
            ("no tensor is divided, so nothing is sent", "remove it"),
        ),
        (
            setting == "tp_comm_overlap" and not sharded,
            ("it needs sequence parallelism", "set parallelism.sequence_parallel: true"),
        ),
        (
            setting == "distribute_saved_activations" and sharded,
            ("sequence parallelism shards activations already", "remove it"),
        ),
        (
            setting == "distribute_saved_activations" and training.recompute != "full",
            ("it needs full recomputing", "set training.recompute: full, or remove it"),
        ),
        (
            offloading and (parallelism.pipeline > 1 or training.recompute != "none"),
            (
                "CPU offloading takes neither pipeline stages nor recomputing",
                "set training.recompute: none and parallelism.pipeline: 1, or remove it",
            ),
        ),
        (
            setting == "fused_residual_rmsnorm" and model.normalization != "RMSNorm",
            (f"the model has {model.normalization}", "remove it"),
        ),
        (
            setting == "defer_embedding_wgrad_compute" and parallelism.pipeline == 1,
            ("it needs a pipeline", "remove it, or raise parallelism.pipeline"),
        ),
        (
            setting == "use_rotary_position_embeddings" and model.position_embedding_type != "rope",
            (
                "the model has learned positions, and this would be another",
                "set model.position_embedding_type: rope, or remove it",
            ),
        ),
        (
            setting == "dataloader_defer_npy_index_mmap" and job.data.cache_dir is None,
            ("it takes a folder for the indices", "set data.cache_dir"),
        ),
        (
            setting == "pipeline_model_parallel_layout" and bool(parallelism.virtual_pipeline),
            ("virtual_pipeline divides the layers too", "remove one of the two"),
        ),
    )
    return next((verdict for applies, verdict in cases if applies), None)


def _multiple(job: MegatronJob, setting: str, values: Sequence[str]) -> tuple[str, str] | None:
    """Compare numbers that must be multiples of what the job file says."""
    steps = {
        "save_retain_interval": ("checkpoint.interval", job.checkpoint.interval),
        "log_memory_interval": ("training.log_interval", job.training.log_interval),
    }
    if setting in steps and values and values[0].isdigit():
        name, step = steps[setting]
        if int(values[0]) % step:
            return f"{values[0]} is no multiple of {name} {step}", f"use a multiple of {step}"
    return None


def _levels(job: MegatronJob, setting: str, values: Sequence[str]) -> tuple[str, str] | None:
    """Compare the sizes of nested groups with the size of the whole."""
    if setting != "hierarchical_context_parallel_sizes" or not all(map(str.isdigit, values)):
        return None
    size = math.prod(map(int, values))
    if size == job.parallelism.context:
        return None
    reason = f"{' x '.join(values)} = {size}, and parallelism.context is {job.parallelism.context}"
    return reason, f"write sizes whose product is {job.parallelism.context}"
