"""Options that do nothing because what they belong to is not asked for, and where they write.

Source: Megatron-LM core_v0.19, where each setting is read: pretrain_gpt.py, megatron/training
(training.py, global_vars.py, checkpointing.py), megatron/core/optimizer and transformer.
"""

from collections.abc import Iterator, Mapping, Sequence

from megatron_eks.catalog.megatron_conflicts import NEEDS_EXPERTS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
from megatron_eks.config.slips import by_word
from megatron_eks.plan.jobs.options.option_checks import Option
from megatron_eks.plan.jobs.options.values import Asked, Problem

# A setting, and those that are read with it alone.
_BELONGS_TO = by_word(
    {
        "adlr_autoresume": "adlr_autoresume_interval",
        "decoupled_lr": "decoupled_min_lr",
        "fim_data": (
            "fim_eod_token fim_fragment_rate fim_middle_token fim_no_prefix fim_pad_token "
            "fim_prefix_token fim_rate fim_split_sample fim_spm_rate fim_suffix_token"
        ),
        "record_memory_history": "memory_snapshot_path",
        "moe_router_enable_expert_bias": "moe_router_bias_update_rate",
        "moe_router_group_topk": "moe_router_num_groups",
        "moe_expert_capacity_factor": "moe_token_drop_policy",
        "mtp_num_layers": "mtp_loss_scaling_factor",
        "non_persistent_ckpt_type": "non_persistent_global_ckpt_dir non_persistent_local_ckpt_algo",
        "optimizer_cpu_offload": "optimizer_offload_fraction overlap_cpu_optimizer_d2h_h2d",
        "profile": "profile_ranks profile_step_end profile_step_start use_pytorch_profiler",
        "use_pytorch_profiler": (
            "pytorch_profiler_collect_callstack pytorch_profiler_collect_chakra "
            "pytorch_profiler_collect_shapes"
        ),
        "first_last_layers_bf16": "num_layers_at_end_in_bf16 num_layers_at_start_in_bf16",
        "qk_clip": "qk_clip_alpha qk_clip_threshold",
        "tp_comm_overlap": (
            "tp_comm_bootstrap_backend tp_comm_bulk_dgrad tp_comm_bulk_wgrad tp_comm_overlap_ag "
            "tp_comm_overlap_cfg tp_comm_overlap_rs tp_comm_overlap_rs_dgrad tp_comm_split_ag "
            "tp_comm_split_rs"
        ),
        "log_straggler": "straggler_ctrlr_port straggler_minmax_count",
        "wandb_project": "wandb_entity wandb_exp_name wandb_save_dir",
    }
)
# Of fp16, whose scale of the loss moves; bf16 has none.
_OF_FP16 = frozenset({"hysteresis", "initial_loss_scale", "loss_scale_window", "min_loss_scale"})
_OF_FP8 = frozenset({"fp8_amax_compute_algo", "fp8_amax_history_len", "fp8_interval", "fp8_margin"})
# Of Megatron's own FSDP, which is refused.
_OF_FSDP = (
    *("data_parallel_sharding_strategy", "fsdp_db_", "fsdp_double_"),
    *("megatron_fsdp_", "outer_dp_sharding_"),
)
# Of programs beside pretrain_gpt.py: BERT, images, retrieval, and learning from rewards.
_OF_OTHER_PROGRAMS = (
    *("bert_", "biencoder_", "dino_", "grpo_", "ict_", "indexer_", "langrl_", "retriever_"),
    *("rl_", "swin_", "vision_"),
)
_NEVER_READ = frozenset(
    {
        *("block_data_path", "classes_fraction", "data_per_class_fraction", "embedding_path"),
        *("evidence_data_path", "head_lr_mult", "img_h", "img_w", "iter_per_epoch", "mask_factor"),
        *("mask_prob", "mask_type", "num_classes", "onnx_safe", "openai_gelu"),
        *("output_bert_embeddings", "patch_dim", "query_in_block_prob", "short_seq_prob"),
        *("titles_data_path", "use_one_sent_docs", "vocab_extra_ids"),
    }
)
# What validate_args says of each: "deprecated and has no effect".
_WITHOUT_EFFECT = frozenset(
    {
        *("ckpt_fully_parallel_save_deprecated", "dist_ckpt_format_deprecated"),
        "use_dist_ckpt_deprecated",
    }
)
_OF_STAGES = frozenset(
    {
        *("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"),
        "pipeline_model_parallel_layout",
    }
)
_GRAPHS = frozenset({"cuda_graph_impl", "enable_cuda_graph", "external_cuda_graph"})
_OF_GRAPHS = frozenset(
    {"cuda_graph_modules", "cuda_graph_scope_deprecated", "cuda_graph_warmup_steps"}
)
_OF_SHARED_EXPERTS = frozenset({"moe_shared_expert_gate", "moe_shared_expert_overlap"})
_OF_OPTIMIZERS = ("lion", "muon", "sgd")

# What a run writes: the folder, or the file.
_PLACES = frozenset(
    {
        *("config_logger_dir", "flight_recorder_dump_path", "logits_save_dir"),
        *("memory_snapshot_path", "moe_routing_trace_path", "non_persistent_global_ckpt_dir"),
        *("non_persistent_local_ckpt_dir", "object_storage_cache_path", "wandb_save_dir"),
    }
)


def check_idle(asked: Asked, given: Mapping[int, Option]) -> Iterator[Finding]:
    """Yield settings that nothing reads."""
    for place, (name, setting, _) in given.items():
        problem = _idle(asked, setting)
        if problem:
            found, remedy = problem
            yield warning(Code.NO_MEANING, ("extra_args", place), f"{name}: {found}", remedy)


def _idle(asked: Asked, setting: str) -> Problem | None:
    training, model = asked.job.training, asked.model
    if setting.startswith(NEEDS_EXPERTS) and model.num_experts is None:
        return None  # it has a finding of its own
    cases: tuple[tuple[bool, Problem], ...] = (
        (
            setting.startswith(_OF_OTHER_PROGRAMS) or setting in _NEVER_READ,
            ("the program that trains a GPT reads it nowhere", "remove it"),
        ),
        (
            setting in _WITHOUT_EFFECT,
            ("Megatron takes it for nothing: checkpoint.format says it", "remove it"),
        ),
        (
            setting in _OF_STAGES and asked.job.parallelism.pipeline == 1,
            ("there are no stages to divide the layers over", "remove it"),
        ),
        (
            setting == "cp_comm_type" and asked.job.parallelism.context == 1,
            ("no sequence is divided", "set parallelism.context, or remove it"),
        ),
        (
            setting in _OF_GRAPHS and asked.values.keys().isdisjoint(_GRAPHS),
            ("no graph is captured", "add --cuda-graph-impl local, or remove it"),
        ),
        (
            setting == "use_flash_attn",
            (
                "nothing reads it any more: Transformer Engine chooses flash attention itself",
                "remove it",
            ),
        ),
        (
            setting in _OF_SHARED_EXPERTS and not model.moe_shared_expert_intermediate_size,
            (
                "the model has no experts that every token goes to",
                "remove it, or set model.moe_shared_expert_intermediate_size",
            ),
        ),
        (
            setting in _OF_FP16,
            ("the scale of the loss moves with fp16 alone, and the run is in bf16", "remove it"),
        ),
        (
            setting in _OF_FP8 and training.precision != "fp8",
            ("nothing is computed in FP8", "set training.precision: fp8, or remove it"),
        ),
        (
            setting.startswith(_OF_FSDP) and "use_megatron_fsdp" not in asked.values,
            ("nothing reads it without Megatron's FSDP", "remove it, or use kind: fsdp"),
        ),
        (
            # The plan always has --exit-signal-handler; this says which signal it waits for.
            setting == "exit_signal" and asked.first(setting) != "SIGTERM",
            ("Kubernetes ends pods by SIGTERM, and the run would not save at that", "remove it"),
        ),
        (
            setting == "lr_wsd_decay_style" and training.lr_schedule != "WSD",
            ("the rate does not follow WSD", "set training.lr_schedule: WSD, or remove it"),
        ),
    )
    of_these = next((problem for applies, problem in cases if applies), None)
    return of_these or _alone(asked, setting) or _of_another_optimizer(asked, setting)


def _alone(asked: Asked, setting: str) -> Problem | None:
    owner = _BELONGS_TO.get(setting)
    if owner is None or owner in asked.values:
        return None
    option = f"--{owner.replace('_', '-')}"
    return f"nothing reads it without {option}", f"add {option}, or remove this one"


def _of_another_optimizer(asked: Asked, setting: str) -> Problem | None:
    start = next((each for each in _OF_OPTIMIZERS if setting.startswith(f"{each}_")), None)
    chosen = asked.first("optimizer") or "adam"
    # Muon leaves vectors to another optimizer.
    if start is None or start in chosen or asked.first("muon_scalar_optimizer") == start:
        return None
    return f"the optimizer is {chosen}", f"add --optimizer {start}, or remove it"


def check_places(
    given: Mapping[int, Option], mount_path: str, writable: Sequence[str]
) -> Iterator[Finding]:
    """Yield what a run writes where no pod can: all but its mounts is read-only."""
    settings = {setting for _, setting, _ in given.values()}
    for place, (name, setting, values) in given.items():
        path = ("extra_args", place)
        if setting == "record_memory_history" and "memory_snapshot_path" not in settings:
            found = f"{name}: the snapshot goes to the working directory, which is read-only"
            remedy = f"add --memory-snapshot-path {mount_path}/NAME.pickle"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
        if setting not in _PLACES or not values or "://" in values[0]:
            continue
        # One node's /tmp is not another's.
        mounts = [mount_path] if setting == "non_persistent_global_ckpt_dir" else writable
        if not any(values[0].startswith(f"{mount}/") for mount in mounts):
            found = f"{name}: a pod may not write to {values[0]}: all but its mounts is read-only"
            if values[0].startswith(tuple(writable)):
                found = f"{name}: {values[0]} is not on the shared file system"
            remedy = f"use a path below {mount_path}/"
            yield Finding(Code.SHARED_PATH, path, found, remedy)
