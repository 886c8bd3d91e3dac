"""Whether options that a job file adds stand beside another that Megatron refuses them with.

Sources: Megatron-LM, `validate_args` in megatron/training/arguments.py, and `__post_init__` of
`TransformerConfig`, `MLATransformerConfig`, `ModelParallelConfig`, `OptimizerConfig` and
`DistributedDataParallelConfig` in megatron/core (core_v0.19).
"""

from collections.abc import Callable

from megatron_eks.plan.jobs.value_checks import Asked, Problem

# Heads of linear attention where no option says how many (TransformerConfig).
_HEADS = {"linear_num_key_heads": 16, "linear_num_value_heads": 32}
_ADD_UNFUSED = "add --no-rope-fusion"


def _buckets(asked: Asked) -> Problem | None:
    if "ddp_bucket_size" not in asked.values:
        return None
    return "--ddp-bucket-size says how many buckets there are", "keep one of the two"


def _local_sums(asked: Asked) -> Problem | None:
    """Judge sums in fp32 of some parameters: those of all are, unless gradients are in bf16."""
    less = "grad_reduce_in_bf16" in asked.values or asked.first("main_grads_dtype") == "bf16"
    if less and "accumulate_allreduce_grads_in_fp32" not in asked.values:
        return None
    return "all gradients are summed in fp32 already", "remove it, or add --grad-reduce-in-bf16"


def _divided_by_length(asked: Asked) -> Problem | None:
    if asked.job.parallelism.pipeline > 1:
        return (
            "sequences of several lengths take no pipeline stages",
            "set parallelism.pipeline: 1, or remove it",
        )
    if "enable_cuda_graph" in asked.values:
        return "graphs hold one length of sequences", "remove --enable-cuda-graph"
    if asked.first("dataloader_type") not in {None, "single"}:
        return "it takes the single loader alone", "remove --dataloader-type"
    return None


def _offloaded(asked: Asked) -> Problem | None:
    if "fp8_param_gather" not in asked.values or asked.first("fp8_recipe") in {None, "delayed"}:
        return None
    return (
        "beside --fp8-param-gather it takes delayed scaling alone",
        "use --fp8-recipe delayed, or remove --fp8-param-gather",
    )


def _precision_aware(asked: Asked) -> Problem | None:
    chosen = asked.first("optimizer")
    if chosen in {None, "adam"}:
        return None
    return f"it is for adam, and the optimizer is {chosen}", f"remove it, or --optimizer {chosen}"


def _interleaved(asked: Asked) -> Problem | None:
    if not asked.model.multi_latent_attention:
        return None
    return "latent attention has an order of its own", "remove it"


def _gate(asked: Asked) -> Problem | None:
    if not asked.model.multi_latent_attention:
        return None
    return "latent attention has no gate yet", "remove it, or model.multi_latent_attention"


def _rope(asked: Asked) -> Problem | None:
    """Judge positions of latent attention: their fused kernel is for YaRN, the default there."""
    latent = asked.model.multi_latent_attention
    if not latent or asked.first("rope_type") == "yarn" or "apply_rope_fusion" in asked.values:
        return None
    reason = "the fused positions of latent attention are YaRN's"
    return reason, f"{_ADD_UNFUSED}, or remove this one"


def _latents(asked: Asked) -> Problem | None:
    if "apply_rope_fusion" in asked.values:
        return None
    return "fused positions keep no latents", f"{_ADD_UNFUSED}, or remove this one"


def _attention(asked: Asked) -> Problem | None:
    kind = asked.first("experimental_attention_variant")
    parallelism = asked.job.parallelism
    if kind == "dsa":
        if asked.model.add_bias_linear:
            return "dsa has no biases", "set model.add_bias_linear: false"
        if "apply_rope_fusion" not in asked.values:
            return "dsa does not go with fused positions", _ADD_UNFUSED
        words = {each.replace("_", "") for each in asked.values.get("cp_comm_type", ("p2p",))}
        if parallelism.context > 1 and words != {"allgather"}:
            return "dsa gathers what context parallelism divides", "add --cp-comm-type allgather"
    if kind == "gated_delta_net":
        ranks = parallelism.tensor * parallelism.context
        for setting, default in _HEADS.items():
            heads = asked.number(setting) or default
            if heads % ranks:
                option = f"--{setting.replace('_', '-')}"
                found = f"{ranks} ranks of tensor x context do not divide {heads} ({option})"
                return found, f"add {option} {ranks * max(1, heads // ranks)}, or use fewer ranks"
    return None


def _deferred(asked: Asked) -> Problem | None:
    if "gradient_accumulation_fusion" not in asked.values:
        return None
    return "gradients must be added inside the multiplication", (
        "remove --no-gradient-accumulation-fusion"
    )


def _without_gloo(asked: Asked) -> Problem | None:
    job = asked.job
    if job.checkpoint.format != "torch" or not job.parallelism.distributed_optimizer:
        return None
    return "the torch format brings the sharded optimizer together over Gloo", (
        "set checkpoint.format: torch_dist, or remove it"
    )


def _multiprocessors(asked: Asked) -> Problem | None:
    """Judge the same number under its two old names."""
    words = {asked.first(each) for each in ("moe_deepep_num_sms", "moe_hybridep_num_sms")}
    if len(words - {None}) < 2:  # noqa: PLR2004 -- two numbers that differ
        return None
    return "--moe-hybridep-num-sms says another number", "use --moe-flex-dispatcher-num-sms alone"


OF_PAIRS: dict[str, Callable[[Asked], Problem | None]] = {
    "attention_output_gate": _gate,
    "cache_mla_latents": _latents,
    "ddp_num_buckets": _buckets,
    "ddp_param_name_patterns_for_fp32_local_accumulation": _local_sums,
    "defer_embedding_wgrad_compute": _deferred,
    "experimental_attention_variant": _attention,
    "hybrid_context_parallel": _divided_by_length,
    "moe_deepep_num_sms": _multiprocessors,
    "optimizer_cpu_offload": _offloaded,
    "rope_type": _rope,
    "rotary_interleaved": _interleaved,
    "use_gloo_process_groups": _without_gloo,
    "use_precision_aware_optimizer": _precision_aware,
}
"""What is judged of each setting."""
