"""Megatron-LM's command line for a job file, in the order its documentation groups them.

Every argument is one of `megatron/training/arguments.py` and `config/*.py` at core_v0.19.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from megatron_eks.catalog.megatron_conflicts import TABLE
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.job import MegatronBridgeJob, MegatronRun
from megatron_eks.config.training import MegatronData, MegatronTraining, Parallelism
from megatron_eks.plan.jobs import tracking
from megatron_eks.plan.jobs.models import BY_HAND
from megatron_eks.predict.layout import Layout

Option = tuple[str, ...]

# Of a warm-up-stable-decay run the last tenth decays (Hu et al. 2024, MiniCPM, section 4).
_WSD_SHARE = 10

# These are Megatron-LM's options by Bridge's names. What a recipe may set itself (a score function,
# another optimizer) is not missing where an override needs it: only what follows from the job file
# is compared.
_BLOCKS = ("model", "ddp", "optimizer", "scheduler", "validation", "comm_overlap")
# By another name than Megatron-LM's setting.
_SETTINGS = {
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}
_ASKED = BY_HAND | {*TABLE["asked_of_bridge"].split()}


def options_among(words: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield each option with what follows it, by the place at which it stands."""
    starts = [index for index, word in enumerate(words) if word.startswith("--")]
    for start, end in pairwise([*starts, len(words)]):
        yield start, words[start:end]


def given(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the options among words, each with its values."""
    found = {}
    for _, (word, *rest) in options_among(words):
        name, equals, value = word.partition("=")
        found[name] = (value,) if equals else tuple(rest)
    return found


def options(**values: str | float | None) -> tuple[str, ...]:
    """Write values as options of our programs: true stands alone, none and false are left out."""
    given = {f"--{name.replace('_', '-')}": value for name, value in values.items()}
    return tuple(
        word
        for name, value in given.items()
        if value is not None and value is not False
        for word in ((name,) if value is True else (name, str(value)))
    )


def megatron_arguments(
    job: MegatronRun, model: ModelShape, layout: Layout, log_directory: str
) -> tuple[str, ...]:
    """Return the arguments of `pretrain_gpt.py`, one word an element, the job file's own last.

    What the job file says itself takes the place of a default, and does not stand beside it.
    """
    own = given(job.extra_args)
    options = (
        *_model(model),
        *_experts(model),
        *_parallelism(job.parallelism, layout),
        *_training(job.training, fp8_recipe(job.extra_args)),
        *_data(job.data),
        *_checkpoint(job),
        *_operation(job, log_directory),
    )
    words = (word for option in options if option[0] not in own for word in option)
    return (*words, *job.extra_args)


def _model(model: ModelShape) -> Iterator[Option]:
    yield ("--use-mcore-models",)
    yield from _named(model, "num_layers hidden_size ffn_hidden_size num_attention_heads")
    if model.multi_latent_attention:
        yield ("--multi-latent-attention",)
        yield from _named(model, "q_lora_rank kv_lora_rank")
        yield from _named(model, "qk_head_dim qk_pos_emb_head_dim v_head_dim")
    elif model.num_query_groups < model.num_attention_heads:
        yield ("--group-query-attention",)
        yield from _named(model, "num_query_groups")
    yield from _named(model, "kv_channels max_position_embeddings position_embedding_type")
    if model.position_embedding_type == "rope":
        yield from _named(model, "rotary_base")
        yield "--rotary-percent", "1.0"
    if model.position_embedding_type == "rope" and model.rope_scaling:
        yield ("--use-rope-scaling",)
        yield "--rope-scaling-factor", _number(model.rope_scaling.factor)
    yield from _named(model, "normalization norm_epsilon")
    yield from _named(model, "mtp_num_layers" if model.mtp_num_layers else "")
    if model.window_size:
        yield "--window-size", f"{model.window_size},0"
        yield from _named(model, "window_attn_skip_freq")
    if model.swiglu:
        yield ("--swiglu",)
    if not model.add_bias_linear:
        yield ("--disable-bias-linear",)
    if model.untie_embeddings_and_output_weights:
        yield ("--untie-embeddings-and-output-weights",)
    yield from _named(model, "attention_dropout hidden_dropout init_method_std")
    yield "--transformer-impl", "transformer_engine"
    yield "--attention-backend", "auto"
    # Megatron's loss fusion in its own kernels; "te" is refused since 0.18.2 for instability.
    yield ("--cross-entropy-loss-fusion",)
    yield "--cross-entropy-fusion-impl", "native"


def _named(block: object, keys: str) -> Iterator[Option]:
    for key in keys.split():
        if (value := getattr(block, key)) is not None:
            word = value if isinstance(value, str) else _number(value)
            yield f"--{key.replace('_', '-')}", word


def _experts(model: ModelShape) -> Iterator[Option]:
    """Yield how tokens are spread over experts; upstream's own Mixtral example has the same."""
    if model.num_experts is None:
        return
    yield from _named(model, "num_experts moe_router_topk moe_ffn_hidden_size")
    yield from _named(model, "moe_shared_expert_intermediate_size")
    if model.moe_layer_freq != 1:
        # `_eval_pattern` in megatron/training/arguments.py takes no blanks.
        form = "".join(str(model.moe_layer_freq).split())
        yield "--moe-layer-freq", form.replace("(", "[").replace(",)", "]").replace(")", "]")
    if model.moe_router_topk == 1:
        # One score has no softmax with a gradient (TransformerConfig refuses it).
        yield ("--moe-router-pre-softmax",)
    yield "--moe-router-load-balancing-type", "aux_loss"
    yield "--moe-aux-loss-coeff", "0.01"
    yield "--moe-token-dispatcher-type", "alltoall"
    yield ("--moe-grouped-gemm",)


def _parallelism(parallelism: Parallelism, layout: Layout) -> Iterator[Option]:
    yield "--tensor-model-parallel-size", str(layout.tensor)
    yield "--pipeline-model-parallel-size", str(layout.pipeline)
    if layout.virtual_pipeline > 1:
        yield "--num-virtual-stages-per-pipeline-rank", str(parallelism.virtual_pipeline)
    yield "--context-parallel-size", str(layout.context)
    if layout.expert > 1:
        yield "--expert-model-parallel-size", str(layout.expert)
    if parallelism.expert_tensor:
        yield "--expert-tensor-parallel-size", str(layout.expert_tensor)
    if layout.sequence_parallel:
        yield ("--sequence-parallel",)
    if layout.distributed_optimizer:
        yield ("--use-distributed-optimizer",)
        yield ("--overlap-grad-reduce",)
        yield ("--overlap-param-gather",)


def fp8_recipe(words: Sequence[str]) -> str:
    """Return the recipe of FP8 that further arguments choose, or Megatron's default."""
    return (given(words).get("--fp8-recipe") or ("delayed",))[0]


def _training(training: MegatronTraining, recipe: str) -> Iterator[Option]:
    yield from _named(training, "micro_batch_size global_batch_size")
    yield "--seq-length", str(training.sequence_length)
    yield from _named(training, "train_iters")
    yield "--lr", _number(training.learning_rate)
    yield "--min-lr", _number(training.min_learning_rate)
    yield "--lr-decay-style", training.lr_schedule
    yield "--lr-warmup-iters", str(training.warmup_iters)
    if training.lr_schedule == "WSD":
        yield "--lr-decay-iters", str(training.train_iters)
        yield "--lr-wsd-decay-iters", str(decay_iters(training))
    else:
        yield "--lr-decay-iters", str(decay_iters(training))
    yield from _named(training, "weight_decay adam_beta1 adam_beta2 clip_grad")
    yield ("--bf16",)
    if training.precision == "fp8":
        # Blocks of 32 need no wide range for gradients, and runs with E5M2 diverge
        # (NVIDIA-NeMo/Megatron-Bridge pull request 638).
        yield "--fp8-format", "e4m3" if recipe == "mxfp8" else "hybrid"
    elif training.precision == "mxfp8":
        yield "--fp8-format", "e4m3"
        yield "--fp8-recipe", "mxfp8"
    elif training.precision == "nvfp4":
        yield "--fp4-format", "e2m1"
        yield "--fp4-recipe", "nvfp4"
    if training.recompute == "selective":
        yield "--recompute-granularity", "selective"
        yield "--recompute-modules", "core_attn"
    elif training.recompute == "full":
        yield "--recompute-granularity", "full"
        yield "--recompute-method", training.recompute_method or "uniform"
        yield "--recompute-num-layers", str(training.recompute_layers or 1)
    yield from _named(training, "seed eval_interval eval_iters log_interval")


def _data(data: MegatronData) -> Iterator[Option]:
    corpora = data.blend or ()
    weighted = tuple(word for blend in corpora for word in (_number(blend.weight), blend.prefix))
    yield "--data-path", *(weighted or (data.prefix or "",))
    yield "--split", ",".join(_number(share) for share in data.split)
    yield "--tokenizer-type", "HuggingFaceTokenizer"
    yield "--tokenizer-model", data.tokenizer
    if data.cache_dir:
        yield "--data-cache-path", data.cache_dir
    yield "--num-workers", str(data.num_workers)
    yield ("--no-create-attention-mask-in-dataloader",)


def _checkpoint(job: MegatronRun) -> Iterator[Option]:
    checkpoint = job.checkpoint
    yield "--save", checkpoint.directory
    yield "--load", checkpoint.directory
    if not keeps_saved_schedule(job):
        # Else Megatron refuses a checkpoint of another schedule (OptimizerParamScheduler), and
        # more iterations are another one.
        yield ("--override-opt_param-scheduler",)
    if checkpoint.pretrained:
        # Used only while --load holds no checkpoint, so a restart resumes (checkpointing.py).
        yield "--pretrained-checkpoint", checkpoint.pretrained
    yield "--save-interval", str(checkpoint.interval)
    yield "--ckpt-format", checkpoint.format
    if checkpoint.format == "torch_dist":
        yield ("--ckpt-fully-parallel-load",)
        yield ("--ckpt-assume-constant-structure",)
        if checkpoint.async_save:
            yield ("--async-save",)
            # Without it Megatron switches asynchronous saving off again, with a warning.
            yield ("--use-persistent-ckpt-worker",)


def _operation(job: MegatronRun, log_directory: str) -> Iterator[Option]:
    yield "--distributed-timeout-minutes", str(job.runtime.distributed_timeout_minutes)
    yield ("--exit-signal-handler",)  # SIGTERM saves a checkpoint before the pod goes
    yield ("--manual-gc",)
    yield "--manual-gc-interval", "100"
    yield ("--log-throughput",)
    yield ("--log-timers-to-tensorboard",)
    yield ("--log-memory-to-tensorboard",)
    yield "--tensorboard-dir", f"{log_directory}/tensorboard"
    yield from tracking.options(job)


def keeps_saved_schedule(job: MegatronRun) -> bool:
    """Tell whether a job asks for the schedule of its checkpoint instead of its own."""
    setting = "use_checkpoint_opt_param_scheduler"
    overrides = job.overrides if isinstance(job, MegatronBridgeJob) else {}
    names = {name.lstrip("-").replace("-", "_") for name in given(job.extra_args)}
    return setting in names or bool(overrides.get(f"scheduler.{setting}"))


def decay_iters(training: MegatronTraining) -> int:
    """Return how long the learning rate falls: up to which iteration, or for WSD how many."""
    if training.lr_schedule == "WSD":
        return training.decay_iters or max(1, training.train_iters // _WSD_SHARE)
    return training.decay_iters or training.train_iters


def _number(value: float) -> str:
    """Write a number without a trailing `.0`; `1e-05` and `0.1` stay as they are."""
    return str(value) if isinstance(value, int) else repr(value).removesuffix(".0")


def as_options(job: MegatronBridgeJob) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield overrides that Megatron-LM can be asked about, with the words that say the same."""
    options = {setting: option for option, setting in OPTIONS.items()}
    for name, setting, words in bridge_options(job):
        if setting in _ASKED:
            yield name, (options[setting], *words)


def bridge_options(job: MegatronBridgeJob) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield overrides as options: a switch that is off is not given."""
    for name, value in job.overrides.items():
        block, _, field = name.partition(".")
        if block in _BLOCKS and value is not False:
            yield name, _SETTINGS.get(field, field), () if value is True else (str(value),)
