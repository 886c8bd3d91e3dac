"""Options of other programs, and of older Megatrons, where Megatron's own are added to a job.

Sources: torchrun's parser (torch.distributed.run); transformers' TrainingArguments; NeMo's
megatron_gpt_config.yaml; Megatron-DeepSpeed's and Megatron-LM's `arguments.py`, from v2.0 on. Only
what this Megatron does not know is looked up.
"""

from megatron_eks.config.slips import by_word

_LAUNCH = (
    "remove it: torchrun's sizes follow from nodes and gpus_per_node, the operator sets the rest"
)
_DEEPSPEED = "remove it: it is DeepSpeed's; parallelism.distributed_optimizer is ZeRO's first stage"
_GONE = "remove it: Megatron has it no more, and needs none in its place"

_REMEDIES: dict[str, str] = {
    _LAUNCH: (
        "gpus local-world-size master-addr master-port max-restarts nnodes node-rank nproc "
        "nproc-per-node num-gpus num-nodes rank rdzv-backend rdzv-conf rdzv-endpoint rdzv-id "
        "standalone world-size"
    ),
    _DEEPSPEED: (
        "deepspeed deepspeed-activation-checkpointing deepspeed-config no-pipeline-parallel zero "
        "zero-optimization zero-stage"
    ),
    "use kind: fsdp": "fsdp fsdp2 fully-shard use-fsdp",
    "use training.micro_batch_size": "batch-size per-device-train-batch-size",
    "use training.global_batch_size: micro_batch_size x data parallel size x this number": (
        "accumulate-grad-batches gradient-accumulation-steps"
    ),
    "use training.train_iters": "max-iters max-steps num-train-epochs epochs",
    "use training.learning_rate": "learning-rate",
    "use training.lr_schedule": "lr-scheduler-type",
    "use training.warmup_iters": "warmup warmup-ratio warmup-steps",
    "use training.clip_grad": "gradient-clipping max-grad-norm",
    "use training.recompute": (
        "activations-checkpoint-granularity activations-checkpoint-method checkpoint-activations "
        "checkpoint-num-layers distribute-checkpointed-activations gradient-checkpointing"
    ),
    "use training.precision: fp8": "fp8 fp8-e4m3 fp8-hybrid",
    "use training.sequence_length": "max-length max-seq-length sequence-length",
    "use checkpoint.directory": "output-dir resume resume-from-checkpoint save-dir",
    "use checkpoint.interval": "save-every save-steps",
    "use checkpoint.keep_last": "save-total-limit",
    "use model, and checkpoint.pretrained for weights": "model-name-or-path",
    "use data.tokenizer": "tokenizer tokenizer-name-or-path",
    "use parallelism.tensor": "model-parallel-size tensor-parallel-size tp tp-size",
    "use parallelism.pipeline": "pipeline-parallel-size pp pp-size",
    "use parallelism.context": "context-parallel cp cp-size",
    "use parallelism.expert": "ep ep-size expert-parallel-size",
    "use model.multi_latent_attention: true": "mla",
    "remove it: Megatron compiles its small kernels by itself": "compile torch-compile",
    "remove it: Megatron does so without --no-align-grad-reduce": "align-grad-reduce",
    # Megatron-LM's tags, `arguments.py`: --DDP-impl and --no-contiguous-buffers-in-local-ddp to
    # v2.6, --enable-one-logger to core_v0.7.0, --no-delay-grad-reduce to core_v0.8.0, and the
    # others to v0.15.3.
    _GONE: (
        "ddp-impl delay-grad-reduce enable-one-logger legacy-tokenizer moe-use-legacy-grouped-gemm "
        "no-async-tensor-model-parallel-allreduce no-contiguous-buffers-in-local-ddp "
        "no-delay-grad-reduce no-query-key-layer-scaling use-legacy-models"
    ),
}
_FOREIGN = by_word(_REMEDIES)


def of_other_program(option: str) -> str | None:
    """Say what stands in a job file for an option that Megatron does not have."""
    return _FOREIGN.get(option.removeprefix("--").replace("_", "-").lower())
