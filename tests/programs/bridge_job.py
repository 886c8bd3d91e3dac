"""The values of a Megatron-Bridge job."""

from typing import Any

# The job file's blocks as a chart renders them.
JOB: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "parallelism": {
        "tensor": 4,
        "pipeline": 1,
        "context": 1,
        "expert": 1,
        "sequence_parallel": True,
    },
    "training": {
        "micro_batch_size": 1,
        "global_batch_size": 512,
        "sequence_length": 4096,
        "train_iters": 10000,
        "learning_rate": 1e-5,
        "min_learning_rate": 1e-6,
        "lr_schedule": "cosine",
        "warmup_iters": 100,
        "weight_decay": 0.1,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "clip_grad": 1.0,
        "precision": "bf16",
        "recompute": "selective",
        "seed": 1234,
        "eval_interval": 500,
        "eval_iters": 20,
        "log_interval": 10,
    },
    "data": {"prefix": "/d/text", "split": [98, 2, 0], "tokenizer": "/t", "num_workers": 8},
    "checkpoint": {
        "directory": "/c",
        "pretrained": "/base",
        "interval": 500,
        "keep_last": 3,
        "format": "torch_dist",
        "async_save": True,
    },
    "runtime": {"distributed_timeout_minutes": 10},
    "overrides": {},
}
