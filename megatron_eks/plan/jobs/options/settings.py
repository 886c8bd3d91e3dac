"""Whether the values of options that a job file adds fit model, layout and each other.

Sources: Megatron-LM, `validate_args` in megatron/training/arguments.py,
`TransformerConfig.__post_init__`, megatron/core/optimizer_param_scheduler.py,
megatron/core/parallel_state.py and megatron/core/pipeline_parallel/schedules.py (core_v0.19).
Options about experts, graphs and offloading stand in `expert_option_checks.py`, pairs that exclude
each other in `exclusions.py`, and numbers and lists by themselves in `values.py`.
"""

from collections.abc import Iterator, Mapping

from megatron_eks.catalog.megatron_conflicts import BREAKS, OF_FAULTS, PARTIAL, TRIALS
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
from megatron_eks.config.job import MegatronJob
from megatron_eks.plan.jobs.options.exclusions import OF_PAIRS
from megatron_eks.plan.jobs.options.expert_option_checks import OF_EXPERTS, OF_MEMORY
from megatron_eks.plan.jobs.options.idle_option_checks import check_idle
from megatron_eks.plan.jobs.options.option_checks import STOPS_WITHOUT_EXPERTS, Option
from megatron_eks.plan.jobs.options.values import OF_VALUES, Asked, Check, Problem, each_layer, when

_PAIR = 2


def check_relations(
    job: MegatronJob, model: ModelShape, given: Mapping[int, Option], copies: int | None
) -> Iterator[Finding]:
    """Yield options that Megatron refuses beside what the job says; `copies` of the model learn."""
    values = {setting: tuple(words) for _, setting, words in given.values()}
    asked = Asked(job, model, values, copies)
    yield from check_idle(asked, given)
    for place, (name, setting, _) in given.items():
        path = ("extra_args", place)
        if setting in STOPS_WITHOUT_EXPERTS and model.num_experts is None:
            continue  # it is refused already
        check = (OF_NUMBERS | OF_EXPERTS | OF_MEMORY | OF_PAIRS | OF_VALUES).get(setting)
        problem = check(asked) if check else None
        if problem:
            reason, remedy = problem
            yield Finding(Code.OPTION_COMBINATION, path, f"{name}: {reason}", remedy)
        elif setting in _IDLE:
            reason, remedy = _IDLE[setting]
            yield warning(Code.NO_MEANING, path, f"{name}: {reason}", remedy)
        elif setting == "dist_ckpt_strictness" and asked.first(setting) in PARTIAL:
            reason, remedy = PARTIAL[asked.first(setting) or ""]
            yield warning(Code.TRIAL_OPTION, path, f"{name}: {reason}", remedy)
        elif setting in TRIALS or setting.startswith(OF_FAULTS):
            reason, remedy = TRIALS.get(setting, BREAKS)
            yield warning(Code.TRIAL_OPTION, path, f"{name}: {reason}", remedy)


def _next_tokens(asked: Asked) -> Problem | None:
    overlapping = "overlap_moe_expert_parallel_comm" in asked.values
    if overlapping and (asked.number("mtp_num_layers") or 0) > 1:
        reason = "--overlap-moe-expert-parallel-comm goes with one such layer"
        return reason, "use 1, or remove one of the two"
    if asked.model.position_embedding_type == "rope":
        return None
    return "it takes no learned positions", "remove it, or use model.position_embedding_type: rope"


def _evaluation(asked: Asked) -> Problem | None:
    sizes = [asked.first(each) for each in ("eval_global_batch_size", "eval_micro_batch_size")]
    if any(int(each) < 1 for each in sizes if each is not None):
        return "a batch has one sequence or more", "use the training's size, or remove it"
    if asked.copies is None:
        return None
    training = asked.job.training
    batch = asked.number("eval_global_batch_size") or training.global_batch_size
    micro = asked.number("eval_micro_batch_size") or training.micro_batch_size
    if batch % (micro * asked.copies) == 0:
        return None
    reason = f"{batch} sequences are no multiple of {micro} x data parallel size {asked.copies}"
    return reason, f"use a multiple of {micro * asked.copies}, or remove it"


def _activation(asked: Asked) -> Problem | None:
    if asked.model.swiglu:
        return "the model has SwiGLU, and one activation", "remove it, or set model.swiglu: false"
    # Without biases Megatron switches the fused kernel off by itself.
    squared = "squared_relu" in asked.values and asked.model.add_bias_linear
    return _own_activation(asked) if squared else None


def _decay(asked: Asked) -> Problem | None:
    style = asked.first("weight_decay_incr_style") or "constant"
    ends = {"start_weight_decay", "end_weight_decay"} & asked.values.keys()
    if style == "constant" and ends:
        return "a constant weight decay has no ends", "add --weight-decay-incr-style linear"
    if style != "constant" and len(ends) < _PAIR:
        both = "add --start-weight-decay and --end-weight-decay"
        return f"{style} goes from one weight decay to another", both
    return None


def _first_rate(asked: Asked) -> Problem | None:
    rate = asked.job.training.learning_rate
    if (asked.amount("lr_warmup_init") or 0) <= rate:
        return None
    return f"the rate would begin above learning_rate {rate:g}", f"use at most {rate:g}"


def _instances(asked: Asked) -> Problem | None:
    count, ranks = asked.number("num_distributed_optimizer_instances") or 1, asked.copies
    if ranks is None or ranks * asked.job.parallelism.context % count == 0:
        return None
    found = f"{count} does not divide {ranks * asked.job.parallelism.context} data parallel ranks"
    return found, "use a divisor of them"


def _groups(asked: Asked) -> Problem | None:
    """Judge how many microbatches a chunk of the interleaved schedule takes at once."""
    size = asked.number("microbatch_group_size_per_vp_stage") or 0
    stages = asked.job.parallelism.pipeline
    training = asked.job.training
    batch = training.global_batch_size // training.micro_batch_size
    most = batch // asked.copies if asked.copies else size
    if stages <= size <= most:
        return None
    if size > most:
        return f"a step has {most} microbatches", f"use at most {most}"
    return f"{size} microbatches do not fill {stages} stages", f"use {stages} or more"


def _chunks(asked: Asked) -> int:
    return asked.job.parallelism.virtual_pipeline or 1


def _all_to_all(asked: Asked) -> Problem | None:
    """Judge context parallelism that exchanges heads, of which each rank must get some.

    Transformer Engine, transformer_engine/pytorch/attention/dot_product_attention/
    context_parallel.py: heads and query groups of a rank are divided by the context size.
    """
    context, tensor = asked.job.parallelism.context, asked.job.parallelism.tensor
    groups = max(1, asked.model.num_query_groups // tensor)
    if "a2a" not in asked.values["cp_comm_type"] or context == 1 or groups % context == 0:
        return None
    reason = f"a2a gives {groups} query groups of a rank to {context} context parallel ranks"
    return reason, f"use p2p, or a context parallel size that divides {groups}"


def _own_activation(asked: Asked) -> Problem | None:
    fused = "bias_swiglu_fusion" if asked.model.swiglu else "bias_gelu_fusion"
    if fused in asked.values:
        return None
    return "Megatron's own fused activation is on", f"add --no-{fused.replace('_', '-')}"


def _clip(asked: Asked) -> Problem | None:
    alpha = asked.amount("qk_clip_alpha")
    if "qk_clip" not in asked.values or alpha is None or 0 < alpha < 1:
        return None
    return f"{alpha:g} does not lie between 0 and 1", "use 0.5, the default"


def _long(asked: Asked) -> Problem | None:
    most = asked.model.max_position_embeddings
    if (asked.number("decoder_seq_length") or 0) <= most:
        return None
    return f"the model has {most} positions", f"use at most {most}, or remove it"


def _without_positions(asked: Asked) -> Problem | None:
    every, layers = asked.number("no_rope_freq") or 1, asked.model.num_layers
    if layers % every:
        return f"{every} does not divide {layers} layers", "use a divisor of the layers"
    return each_layer("no_rope_freq")(asked)


def _offset(asked: Asked) -> Problem | None:
    """Judge an offset of SwiGLU, which Megatron's fused kernel has not."""
    return _own_activation(asked) if asked.amount("glu_linear_offset") else None


OF_NUMBERS: dict[str, Check] = {
    "cp_comm_type": _all_to_all,
    "decoder_seq_length": _long,
    "end_weight_decay": _decay,
    "eval_global_batch_size": _evaluation,
    "eval_micro_batch_size": _evaluation,
    # Scales that come late know no layer without them.
    "first_last_layers_bf16": when(
        lambda asked: (
            asked.job.training.precision == "fp8" and asked.first("fp8_recipe") in {None, "delayed"}
        ),
        "delayed scaling does not leave layers out",
        "add --fp8-recipe tensorwise",
    ),
    "fp8_output_proj": when(
        lambda asked: asked.job.training.precision != "fp8" or asked.first("fp8_recipe") != "mxfp8",
        "it is for MXFP8 alone",
        "remove it, or use training.precision: fp8 and --fp8-recipe mxfp8",
    ),
    "glu_linear_offset": _offset,
    "lr_warmup_init": _first_rate,
    "microbatch_group_size_per_vp_stage": _groups,
    "mtp_num_layers": _next_tokens,
    "no_rope_freq": _without_positions,
    "qk_clip_alpha": _clip,
    "replication": when(
        lambda asked: asked.first("non_persistent_ckpt_type") != "local",
        "it copies local checkpoints",
        "add --non-persistent-ckpt-type local, or remove it",
    ),
    "use_te_activation_func": _own_activation,
    "num_distributed_optimizer_instances": _instances,
    "overlap_p2p_comm": when(
        lambda asked: asked.job.parallelism.pipeline == _PAIR and _chunks(asked) > 1,
        "two stages interleave only with overlapping communication",
        "remove it, or virtual_pipeline, or use more stages",
    ),
    "overlap_p2p_comm_warmup_flush": when(
        lambda asked: _chunks(asked) == 1 or "overlap_p2p_comm" in asked.values,
        "nothing is sent beside the computing without interleaving",
        "remove it, or set parallelism.virtual_pipeline",
    ),
    "override_opt_param_scheduler": when(
        lambda asked: "use_checkpoint_opt_param_scheduler" in asked.values,
        "--use-checkpoint-opt_param-scheduler wants the opposite",
        "keep one of the two",
    ),
    "quick_geglu": _activation,
    "squared_relu": _activation,
    "start_weight_decay": _decay,
    "weight_decay_incr_style": _decay,
}
"""What is judged of each setting against the numbers of the job file."""
# What Megatron takes, and what then happens.
_IDLE: dict[str, Problem] = {
    # NVIDIA/nvidia-resiliency-ext, docs/source/inprocess/usage_guide.rst, and Megatron's
    # inprocess_restart.py, which takes the two ports after MASTER_PORT (read 2026-11).
    "inprocess_restart": (
        "torchrun ends all ranks when one ends, so it helps only where every process stays alive",
        "remove it: gang_restarts starts all again; or set TORCH_NCCL_RETHROW_CUDA_ERRORS=0",
    ),
    "reset_attention_mask": (
        "the plan has no masks made, so one document still sees those before it",
        "remove it",
    ),
}
