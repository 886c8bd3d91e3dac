"""Options of other programs, and of older Megatrons, where Megatron's own are added to a job.

Sources: torchrun's parser (torch.distributed.run); transformers' TrainingArguments; NeMo's
megatron_gpt_config.yaml; Megatron-DeepSpeed's and Megatron-LM's `arguments.py`, from v2.0 on. Only
what this Megatron does not know is looked up.
"""

from megatron_eks.config.slips import same

_LAUNCH = (
    "remove it: torchrun's sizes follow from nodes and gpus_per_node, the operator sets the rest"
)
_DEEPSPEED = "remove it: it is DeepSpeed's; parallelism.distributed_optimizer is ZeRO's first stage"
_GONE = "remove it: Megatron has it no more, and needs none in its place"

_FOREIGN: dict[str, str] = {
    **same(
        _LAUNCH,
        "gpus local-world-size master-addr master-port max-restarts nnodes node-rank nproc "
        "nproc-per-node num-gpus num-nodes rank rdzv-backend rdzv-conf rdzv-endpoint rdzv-id "
        "standalone world-size",
    ),
    **same(
        _DEEPSPEED,
        "deepspeed deepspeed-activation-checkpointing deepspeed-config no-pipeline-parallel zero "
        "zero-optimization zero-stage",
    ),
    **same("use kind: fsdp", "fsdp fsdp2 fully-shard use-fsdp"),
    **same("use training.micro_batch_size", "batch-size per-device-train-batch-size"),
    **same(
        "use training.global_batch_size: micro_batch_size x data parallel size x this number",
        "accumulate-grad-batches gradient-accumulation-steps",
    ),
    **same("use training.train_iters", "max-iters max-steps num-train-epochs epochs"),
    **same("use training.learning_rate", "learning-rate"),
    **same("use training.lr_schedule", "lr-scheduler-type"),
    **same("use training.warmup_iters", "warmup warmup-ratio warmup-steps"),
    **same("use training.clip_grad", "gradient-clipping max-grad-norm"),
    **same(
        "use training.recompute",
        "activations-checkpoint-granularity activations-checkpoint-method checkpoint-activations "
        "checkpoint-num-layers distribute-checkpointed-activations gradient-checkpointing",
    ),
    **same("use training.precision: fp8", "fp8 fp8-e4m3 fp8-hybrid"),
    **same("use training.sequence_length", "max-length max-seq-length sequence-length"),
    **same("use checkpoint.directory", "output-dir resume resume-from-checkpoint save-dir"),
    **same("use checkpoint.interval", "save-every save-steps"),
    **same("use checkpoint.keep_last", "save-total-limit"),
    **same("use model, and checkpoint.pretrained for weights", "model-name-or-path"),
    **same("use data.tokenizer", "tokenizer tokenizer-name-or-path"),
    **same("use parallelism.tensor", "model-parallel-size tensor-parallel-size tp tp-size"),
    **same("use parallelism.pipeline", "pipeline-parallel-size pp pp-size"),
    **same("use parallelism.context", "context-parallel cp cp-size"),
    **same("use parallelism.expert", "ep ep-size expert-parallel-size"),
    **same("use model.multi_latent_attention: true", "mla"),
    **same("remove it: Megatron compiles its small kernels by itself", "compile torch-compile"),
    **same("remove it: Megatron does so without --no-align-grad-reduce", "align-grad-reduce"),
    # Megatron-LM's tags, `arguments.py`: --DDP-impl and --no-contiguous-buffers-in-local-ddp to
    # v2.6, --enable-one-logger to core_v0.7.0, --no-delay-grad-reduce to core_v0.8.0, and the
    # others to v0.15.3.
    **same(
        _GONE,
        "ddp-impl delay-grad-reduce enable-one-logger legacy-tokenizer moe-use-legacy-grouped-gemm "
        "no-async-tensor-model-parallel-allreduce no-contiguous-buffers-in-local-ddp "
        "no-delay-grad-reduce no-query-key-layer-scaling use-legacy-models",
    ),
}


def of_other_program(option: str) -> str | None:
    """Say what stands in a job file for an option that Megatron does not have."""
    return _FOREIGN.get(option.removeprefix("--").replace("_", "-").lower())
