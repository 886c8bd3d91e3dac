"""The configuration of train_fsdp and train_ddp: what a file may say, and its mistakes.

A file holds the blocks of a job file; the rest of a job file (its pool, image and so on) is for
others and passes. JSON is read by Python alone, YAML needs PyYAML.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from megatron_eks.programs.program import Finding, usage_error
from megatron_eks.programs.trainer.values import (
    Fraction,
    Natural,
    Number,
    checks_of,
    found,
    read,
    unknown,
)

_JOB_KEYS = ("schema_version", "kind", "name", "pool", "nodes", "gpus_per_node", "image", "runtime")
_BLOCKS = ("model", "training", "data", "checkpoint")
_DEFAULT_TIMEOUT_MINUTES = 10


@dataclass(frozen=True)
class Training:
    """Batch, schedule and optimizer."""

    max_steps: int = 100
    train_batch_size: int = 1
    """Sequences a GPU works on in a step."""
    sequence_length: int = 2048
    learning_rate: float = 1e-4
    min_learning_rate: Number = 1e-5
    lr_schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_iters: Natural = 0
    weight_decay: Number = 0.2
    adam_beta1: Fraction = 0.9
    adam_beta2: Fraction = 0.95
    clip_grad: Number = 1.0
    """0 does not clip."""
    precision: Literal["bf16"] = "bf16"
    sharding: Literal["full", "hybrid"] = "full"
    activation_checkpointing: bool = True
    seed: Natural = 42
    validation_interval: int = 25
    log_interval: int = 1


def learning_rate(training: Training, step: int) -> float:
    """Return the rate of a step, counted from 1: a linear warm-up, then the schedule."""
    top, least = training.learning_rate, training.min_learning_rate
    if step <= training.warmup_iters:
        return top * step / training.warmup_iters
    if training.lr_schedule == "constant":
        return top
    done = (step - training.warmup_iters) / max(1, training.max_steps - training.warmup_iters)
    done = min(1.0, done)
    part = 1.0 - done if training.lr_schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2
    return least + (top - least) * part


@dataclass(frozen=True)
class Data:
    """What is trained on."""

    dataset: str
    tokenizer: str
    configuration: str | None = None
    num_workers: Natural = 2
    """Batches that are prepared ahead; 0 prepares each when it is needed."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a run saves and resumes, and what it starts from."""

    directory: str
    pretrained: str | None = None
    """A directory of Hugging Face safetensors."""
    interval: int = 500
    keep_last: int = 3
    format: Literal["torch_dist"] = "torch_dist"
    async_save: bool = True
    s3_uri: str | None = None
    """Where checkpoint_sync copies whole ones to, beside the training."""


@dataclass(frozen=True)
class Config:
    """A file without mistakes; `model` is checked by `trainer_shape`."""

    model: str | Mapping[str, Any]
    training: Training
    data: Data
    checkpoint: Checkpoint
    timeout_minutes: int = _DEFAULT_TIMEOUT_MINUTES


def read_config(path: Path, findings: list[Finding]) -> Config | None:
    """Read a file; return None if anything is wrong, which `findings` then has in words."""
    try:
        content = _parse(path.read_text(encoding="utf-8"))
    except OSError as problem:
        words = f"cannot be read: {problem.strerror}"
        findings.append(usage_error(path, words, "correct --config"))
        return None
    except ValueError as problem:
        findings.append(usage_error(path, " ".join(str(problem).split()), "correct it"))
        return None
    if not isinstance(content, dict):
        blocks = ", ".join(_BLOCKS)
        findings.append(usage_error(path, found(content), f"write a mapping with {blocks}"))
        return None
    findings.extend(unknown(content, (*_BLOCKS, *_JOB_KEYS), ""))
    model = content.get("model")
    if not isinstance(model, (str, Mapping)):
        findings.append(usage_error("model", found(model), "name a preset, or give a mapping"))
        model = ""
    training = _block(Training, "training", content, findings)
    data = _block(Data, "data", content, findings)
    checkpoint = _block(Checkpoint, "checkpoint", content, findings)
    if not findings:
        findings.extend(_together(training))
    if findings:
        return None
    runtime = content.get("runtime") or {}
    timeout = runtime.get("distributed_timeout_minutes") if isinstance(runtime, Mapping) else None
    minutes = timeout if isinstance(timeout, int) else _DEFAULT_TIMEOUT_MINUTES
    return Config(model, training, data, checkpoint, minutes)


def _parse(written: str) -> object:
    """Read JSON or YAML; raise ValueError."""
    try:
        return json.loads(written)
    except ValueError:
        pass
    try:
        import yaml  # noqa: PLC0415 -- JSON does without it
    except ImportError:
        raise ValueError("not JSON, and YAML needs PyYAML, which is not installed") from None
    try:
        return yaml.safe_load(written)
    except yaml.YAMLError as problem:
        raise ValueError(f"neither JSON nor YAML: {problem}") from problem


def _block(kind: type, name: str, whole: Mapping[str, Any], findings: list[Finding]) -> Any:  # noqa: ANN401 -- the class is the argument
    content = whole.get(name, {})
    if not isinstance(content, Mapping):
        findings.append(usage_error(name, found(content), "write a mapping"))
        return None
    values = read(content, checks_of(kind), f"{name}.", findings)
    for field in fields(kind):
        if field.name not in values and field.default is MISSING:
            findings.append(usage_error(f"{name}.{field.name}", "not there", "add it"))
            return None
    return kind(**values)


def _together(training: Training) -> Iterator[Finding]:
    if training.min_learning_rate > training.learning_rate:
        words = f"{training.min_learning_rate}, above the learning rate {training.learning_rate}"
        yield usage_error("training.min_learning_rate", words, "lower it")
    if training.warmup_iters > training.max_steps:
        words = f"{training.warmup_iters}, and the run has {training.max_steps} steps"
        yield usage_error("training.warmup_iters", words, "lower it, or raise max_steps")
