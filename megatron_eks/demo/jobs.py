"""The demo's cluster file and jobs, and what becomes of their manifests without GPUs."""

import json
from pathlib import Path
from typing import Any

from megatron_eks.kubernetes.client import Object
from megatron_eks.project import ROOT

MEGATRON, FSDP = "demo-megatron", "demo-fsdp"
ITERATIONS, INTERVAL = 40, 10
STEPS = 12

SHARED = "/shared"
DATA, TOKENIZER = f"{SHARED}/data/demo", f"{SHARED}/tokenizer/demo"
"""Where the corpus and the tokenizer lie, as pods see them."""

BUCKET = "meks-demo-checkpoints"

# The default cluster file's documentation values, and what stands for them here. The address is
# nobody's: relays of 6to4 had it, which ended with RFC 7526.
_CHANGES = {
    "111122223333": "000000000000",
    "203.0.113.0/24": "192.88.99.1/32",
    # The demo ends with a cleanup.
    "  public_cidrs": "  deletion_protection: false\n  public_cidrs",
}

# A Llama of some hundred thousand parameters.
_MODEL = {
    "num_layers": 2,
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 16,
    "vocab_size": 260,
    "max_position_embeddings": 64,
}


def write_project(cluster_file: Path) -> None:
    """Write the cluster file and its jobs, of two ranks each."""
    text = (ROOT / "cluster.yaml").read_text(encoding="utf-8")
    for old, new in _CHANGES.items():
        text = text.replace(old, new)
    cluster_file.write_text(text)
    folder = cluster_file.with_name("jobs")
    folder.mkdir()
    for name, job in (("megatron", _megatron()), ("fsdp", _fsdp())):
        # Every JSON text is YAML.
        (folder / f"demo-{name}.yaml").write_text(json.dumps(job, indent=2))


def _megatron() -> Object:
    return {
        **_head("megatron", MEGATRON, nodes=2, gpus=1),
        "image": "megatron",
        "model": {"preset": "llama-2-7b", **_MODEL},
        # Split over two pods below; on GPUs tensor parallelism stays inside a node, as is checked.
        "parallelism": {"tensor": 1},
        "training": {
            "global_batch_size": 8,
            "micro_batch_size": 4,
            "sequence_length": 64,
            "train_iters": ITERATIONS,
            "learning_rate": 3e-3,
            "min_learning_rate": 3e-4,
            "warmup_iters": 2,
            "eval_iters": 0,
            "log_interval": 1,
        },
        "data": {
            "prefix": f"{DATA}/documents_text_document",
            "tokenizer": TOKENIZER,
            "num_workers": 0,
        },
        "checkpoint": {
            **_checkpoint(MEGATRON, INTERVAL),
            "s3_uri": f"s3://{BUCKET}/{MEGATRON}",
            # A process that saves would import torch once more on each rank, for a megabyte.
            "async_save": False,
        },
    }


def _fsdp() -> Object:
    return {
        # Both ranks in one pod: a second one would bring another launcher, which imports torch too.
        **_head("fsdp", FSDP, nodes=1, gpus=2),
        "image": "fsdp",
        "model": _MODEL,
        "training": {
            "max_steps": STEPS,
            "train_batch_size": 2,
            "sequence_length": 64,
            "learning_rate": 0.01,
            "min_learning_rate": 0.001,
            "warmup_iters": 2,
            "validation_interval": STEPS,
        },
        "data": {"dataset": f"{DATA}/documents.jsonl", "tokenizer": TOKENIZER},
        "checkpoint": _checkpoint(FSDP, STEPS // 2) | {"s3_uri": f"s3://{BUCKET}/{FSDP}"},
    }


def _head(kind: str, name: str, *, nodes: int, gpus: int) -> Object:
    return {
        "schema_version": 1,
        "kind": kind,
        "name": name,
        "pool": "p4d",
        "nodes": nodes,
        "gpus_per_node": gpus,
    }


def _checkpoint(name: str, interval: int) -> Object:
    return {"directory": f"{SHARED}/checkpoints/{name}", "interval": interval, "keep_last": 3}


def on_cpus(manifest: Object) -> Object:
    """Change a PyTorchJob in place for two CPU ranks: the little that asks for GPUs by name."""
    for role in manifest["spec"]["pytorchReplicaSpecs"].values():
        (container,) = role["template"]["spec"]["containers"]
        container["args"] = _args(container["args"])
    return manifest


def _args(args: list[Any]) -> list[Any]:
    if "--tensor-model-parallel-size" not in args:
        return [*args, "--device", "cpu"]
    # Without bf16 it computes in fp32, of which losses can be compared closely.
    found = [word for word in args if word != "--bf16"]
    found[found.index("--tensor-model-parallel-size") + 1] = "2"
    # There is one replica of the model then, which takes the whole batch at once.
    found[found.index("--micro-batch-size") + 1] = found[found.index("--global-batch-size") + 1]
    return [*found, "--sequence-parallel"]
