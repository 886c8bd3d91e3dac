"""Options of Megatron-LM that cannot stand beside those that a plan sets, each with its reason.

Source: `validate_args` in megatron/training/arguments.py and `TransformerConfig.__post_init__`
(core_v0.19), except where a reason speaks of a restart: those options make a run that starts again
begin anew. Names are settings of `megatron_options.OPTIONS`.
"""

from typing import NamedTuple


class Conflict(NamedTuple):
    """Why an option is refused, and what to do instead."""

    reason: str
    instead: str


_SAMPLES = Conflict("the plan counts iterations", "use training.train_iters")
_DATA = Conflict("a run has one source of data", "use data.prefix or data.blend")
_RESTART = Conflict(
    "a run that starts again would not go on where it was", "use checkpoint.pretrained to start"
)
_UNSAVED = Conflict(
    "a run that starts again stops at a checkpoint that lacks something", "remove it"
)
_HYBRID = Conflict(
    "the number of layers would follow from it, and not from the model", "use model.num_layers"
)
# NVIDIA-NeMo/Megatron-Bridge issue 3343: neither backend finds EFA as the image has them.
_NO_EFA = "which look for InfiniBand cards between nodes"
# nvidia-resiliency-ext, "Fault tolerance", usage guide: that launcher starts the rank monitors.
_LAUNCHER = Conflict(
    "ranks look for monitors, which ft_launcher starts and torchrun does not",
    "remove it: runtime.distributed_timeout_minutes ends ranks that hang",
)

ALWAYS: dict[str, Conflict] = {
    "fp16": Conflict("a run has one precision, and it is bf16", "use training.precision"),
    "use_megatron_fsdp": Conflict("its checkpoints have a format of their own", "use kind: fsdp"),
    "train_samples": _SAMPLES,
    # megatron/core/num_microbatches_calculator.py warns that it is deprecated, and drops it.
    "rampup_batch_size": Conflict(
        "this Megatron ignores it, and the batch never grows", "remove it"
    ),
    "yaml_cfg": Conflict(
        "Megatron takes the file instead of the plan's arguments", "use the job file's keys"
    ),
    "train_data_path": _DATA,
    "per_split_data_args_path": _DATA,
    # BlendedMegatronDatasetConfig takes it beside data named by split alone.
    "dataloader_fast_cache_load": Conflict("it does not go with --data-path", "remove it"),
    "recompute_activations": Conflict("it contradicts the plan's", "use training.recompute"),
    "finetune": _RESTART,
    "no_load_optim": _RESTART,
    "no_save_optim": _UNSAVED,
    "no_save_rng": _UNSAVED,
    "load_main_params_from_ckpt": _RESTART,
    "override_ckpt_iteration": _RESTART,
    "skip_train": Conflict("nothing would be trained", "remove it"),
    "ckpt_convert_format": Conflict("Megatron converts and ends", "use kind: convert_checkpoint"),
    "overlap_param_gather_with_optimizer_step": Conflict(
        "distributed checkpoints do not take it", "remove it"
    ),
    "hybrid_layer_pattern": _HYBRID,
    "hybrid_override_pattern": _HYBRID,
    "use_mp_args_from_checkpoint_args": Conflict(
        "Megatron takes the checkpoint's layout instead of the plan's", "use parallelism"
    ),
    "ckpt_step": Conflict("a run that starts again would go back to it each time", "remove it"),
    "distributed_backend": Conflict(
        "NCCL is the one backend whose collectives GPUs and EFA carry", "remove it"
    ),
    "use_sharp": Conflict(
        "it is about InfiniBand switches that add up, and EFA has none", "remove it"
    ),
    "vocab_file": Conflict("the tokenizer is a folder of Hugging Face's", "use data.tokenizer"),
    "merge_file": Conflict("the tokenizer is a folder of Hugging Face's", "use data.tokenizer"),
    "enable_ft_package": _LAUNCHER,
}

OF_PLAN: dict[tuple[str, str], str] = {
    ("moe_token_dispatcher_type", "flex"): (f"flex is for DeepEP and HybridEP, {_NO_EFA}"),
    ("moe_token_dispatcher_type", "allgather"): (
        "allgather sends every token to every rank of the experts"
    ),
    ("moe_router_load_balancing_type", "sinkhorn"): (
        "sinkhorn has no auxiliary loss, and takes no capacity factor"
    ),
    ("transformer_impl", "local"): "local has neither context parallelism nor FP8",
    ("cross_entropy_fusion_impl", "te"): "te is refused for its instability",
    # TransformerBlock's spec of it is another; validate_args asks for --spec local.
    ("attention_backend", "local"): "local takes another kind of layers",
    ("attention_backend", "unfused"): (
        "unfused holds a number for every pair of positions, and takes no context parallelism"
    ),
}
"""What speaks against some values of settings that the plan gives every run."""

CHOSEN = frozenset(
    {
        *("attention_backend", "manual_gc_interval"),
        *("moe_aux_loss_coeff", "moe_router_load_balancing_type"),
        *("override_opt_param_scheduler", "recompute_modules"),
    }
)
"""Settings of which the plan has a default, and a job the choice: nothing is planned with them."""

NEEDS_EXPERTS = "moe_"
"""Settings of this prefix do nothing without experts."""

OF_FAULTS = ("fault_injector_", "error_injection_")
"""Settings that break a run on purpose, by their beginning."""
BREAKS = Conflict("it breaks the run on purpose", "remove it, unless the breaking is the test")

_BENCHMARK = Conflict(
    "it is for benchmarks: experts learn from tokens that mean nothing", "remove it"
)
_ENDS = Conflict(
    "the run ends there as if it had finished, and nothing starts it again",
    "remove it, or plan who starts the rest",
)
TRIALS: dict[str, Conflict] = {
    "exit_duration_in_mins": _ENDS,
    "exit_interval": _ENDS,
    "fake_process_group": Conflict(
        "no rank talks to another, so each trains a model of its own", "remove it"
    ),
    "freeze_all_layers": Conflict("no weight changes", "remove it"),
    "moe_router_force_biased": _BENCHMARK,
    "moe_router_force_load_balancing": _BENCHMARK,
}
"""Settings for trials, each with what it makes of a run."""

_RANDOM = Conflict("what a checkpoint lacks stays random, and nothing stops", "remove it")
PARTIAL: dict[str, Conflict] = {"ignore_all": _RANDOM, "log_all": _RANDOM}
"""Values of `dist_ckpt_strictness` with which a checkpoint may miss weights."""

IN_PROCESS_RESTART = Conflict(
    "torchrun ends all ranks when one ends, so it helps only where every process stays alive",
    "remove it: gang_restarts starts all again; or set TORCH_NCCL_RETHROW_CUDA_ERRORS=0",
)
"""NVIDIA/nvidia-resiliency-ext, docs/source/inprocess/usage_guide.rst, and Megatron's
inprocess_restart.py, which takes the two ports after MASTER_PORT (read 2026-11)."""

FLEX_BETWEEN_NODES = Conflict(
    f"flex is for DeepEP and HybridEP, {_NO_EFA}", "use alltoall, or an image that has them for EFA"
)
