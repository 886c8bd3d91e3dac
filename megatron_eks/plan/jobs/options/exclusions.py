"""Whether options that a job file adds stand beside another that Megatron refuses them with.

Sources: Megatron-LM, `validate_args` in megatron/training/arguments.py, and `__post_init__` of
`TransformerConfig`, `MLATransformerConfig`, `ModelParallelConfig`, `OptimizerConfig` and
`DistributedDataParallelConfig` in megatron/core (core_v0.19).
"""

from megatron_eks.plan.jobs.options.values import Asked, Check, Problem, when

# Heads of linear attention where no option says how many (TransformerConfig).
_HEADS = {"linear_num_key_heads": 16, "linear_num_value_heads": 32}
_ADD_UNFUSED = "add --no-rope-fusion"


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


def _precision_aware(asked: Asked) -> Problem | None:
    chosen = asked.first("optimizer")
    if chosen in {None, "adam"}:
        return None
    return f"it is for adam, and the optimizer is {chosen}", f"remove it, or --optimizer {chosen}"


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


def _multiprocessors(asked: Asked) -> Problem | None:
    """Judge the same number under its two old names."""
    words = {asked.first(each) for each in ("moe_deepep_num_sms", "moe_hybridep_num_sms")}
    if len(words - {None}) < 2:  # noqa: PLR2004 -- two numbers that differ
        return None
    return "--moe-hybridep-num-sms says another number", "use --moe-flex-dispatcher-num-sms alone"


OF_PAIRS: dict[str, Check] = {
    "attention_output_gate": when(
        lambda asked: asked.model.multi_latent_attention,
        "latent attention has no gate yet",
        "remove it, or model.multi_latent_attention",
    ),
    "cache_mla_latents": when(
        lambda asked: "apply_rope_fusion" not in asked.values,
        "fused positions keep no latents",
        f"{_ADD_UNFUSED}, or remove this one",
    ),
    "ddp_num_buckets": when(
        lambda asked: "ddp_bucket_size" in asked.values,
        "--ddp-bucket-size says how many buckets there are",
        "keep one of the two",
    ),
    "ddp_param_name_patterns_for_fp32_local_accumulation": when(
        lambda asked: (
            "accumulate_allreduce_grads_in_fp32" in asked.values
            or (
                ("grad_reduce_in_bf16" not in asked.values)
                and asked.first("main_grads_dtype") != "bf16"
            )
        ),
        "all gradients are summed in fp32 already",
        "remove it, or add --grad-reduce-in-bf16",
    ),
    "defer_embedding_wgrad_compute": when(
        lambda asked: "gradient_accumulation_fusion" in asked.values,
        "gradients must be added inside the multiplication",
        "remove --no-gradient-accumulation-fusion",
    ),
    "experimental_attention_variant": _attention,
    "hybrid_context_parallel": _divided_by_length,
    "moe_deepep_num_sms": _multiprocessors,
    "optimizer_cpu_offload": when(
        lambda asked: (
            "fp8_param_gather" in asked.values
            and asked.first("fp8_recipe") not in {None, "delayed"}
        ),
        "beside --fp8-param-gather it takes delayed scaling alone",
        "use --fp8-recipe delayed, or remove --fp8-param-gather",
    ),
    # The fused kernel of latent attention is for YaRN, the default there.
    "rope_type": when(
        lambda asked: (
            asked.model.multi_latent_attention
            and asked.first("rope_type") != "yarn"
            and "apply_rope_fusion" not in asked.values
        ),
        "the fused positions of latent attention are YaRN's",
        f"{_ADD_UNFUSED}, or remove this one",
    ),
    "rotary_interleaved": when(
        lambda asked: asked.model.multi_latent_attention,
        "latent attention has an order of its own",
        "remove it",
    ),
    "use_gloo_process_groups": when(
        lambda asked: (
            asked.job.checkpoint.format == "torch" and asked.job.parallelism.distributed_optimizer
        ),
        "the torch format brings the sharded optimizer together over Gloo",
        "set checkpoint.format: torch_dist, or remove it",
    ),
    "use_precision_aware_optimizer": _precision_aware,
}
"""What is judged of each setting."""
