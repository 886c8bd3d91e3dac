"""The configuration of train_fsdp and train_ddp: what a file may say, and its mistakes.

A file holds the blocks of a job file; the rest of a job file (its pool, image and so on) is for
others and passes. JSON is read by Python alone, YAML needs PyYAML.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from megatron_eks.programs.program import Finding, usage_error
from megatron_eks.programs.trainer.values import (
    boolean,
    choice,
    fraction,
    natural,
    number,
    optional,
    positive,
    positive_number,
    text,
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
    min_learning_rate: float = 1e-5
    lr_schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_iters: int = 0
    weight_decay: float = 0.2
    adam_beta1: float = 0.9
    adam_beta2: float = 0.95
    clip_grad: float = 1.0
    """0 does not clip."""
    precision: Literal["bf16"] = "bf16"
    sharding: Literal["full", "hybrid"] = "full"
    activation_checkpointing: bool = True
    seed: int = 42
    validation_interval: int = 25
    log_interval: int = 1


@dataclass(frozen=True)
class Data:
    """What is trained on."""

    dataset: str
    tokenizer: str
    configuration: str | None = None
    num_workers: int = 2
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


_CHECKS: dict[type, dict[str, Callable[[object], object]]] = {
    Training: {
        "max_steps": positive,
        "train_batch_size": positive,
        "sequence_length": positive,
        "learning_rate": positive_number,
        "min_learning_rate": number,
        "lr_schedule": choice("constant", "linear", "cosine"),
        "warmup_iters": natural,
        "weight_decay": number,
        "adam_beta1": fraction,
        "adam_beta2": fraction,
        "clip_grad": number,
        "precision": choice("bf16"),
        "sharding": choice("full", "hybrid"),
        "activation_checkpointing": boolean,
        "seed": natural,
        "validation_interval": positive,
        "log_interval": positive,
    },
    Data: {
        "dataset": text,
        "configuration": optional(text),
        "tokenizer": text,
        "num_workers": natural,
    },
    Checkpoint: {
        "directory": text,
        "pretrained": optional(text),
        "interval": positive,
        "keep_last": positive,
        "format": choice("torch_dist"),
        "async_save": boolean,
        "s3_uri": optional(text),
    },
}


def read_config(path: Path, findings: list[Finding]) -> Config | None:
    """Read a file; return None if anything is wrong, which `findings` then has in words."""
    content = _parse(path, findings)
    if content is None:
        return None
    findings.extend(_unknown(content, (*_BLOCKS, *_JOB_KEYS), ""))
    model = content.get("model")
    if not isinstance(model, (str, Mapping)):
        findings.append(usage_error("model", _found(model), "name a preset, or give a mapping"))
        model = ""
    blocks = {
        name: _block(kind, name, content.get(name, {}), findings)
        for name, kind in (("training", Training), ("data", Data), ("checkpoint", Checkpoint))
    }
    runtime = content.get("runtime") or {}
    timeout = runtime.get("distributed_timeout_minutes") if isinstance(runtime, Mapping) else None
    if findings:
        return None
    training = blocks["training"]
    findings.extend(_together(training))
    minutes = timeout if isinstance(timeout, int) else _DEFAULT_TIMEOUT_MINUTES
    config = Config(model=model, timeout_minutes=minutes, **blocks)
    return None if findings else config


def _parse(path: Path, findings: list[Finding]) -> dict[str, Any] | None:
    try:
        written = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        findings.append(usage_error(path, f"cannot be read: {reason}", "correct --config"))
        return None
    try:
        content = json.loads(written)
    except ValueError:
        try:
            import yaml  # noqa: PLC0415 -- JSON does without it
        except ImportError:
            remedy = "write it as JSON, or install PyYAML"
            findings.append(usage_error(path, "not JSON, and PyYAML is not installed", remedy))
            return None
        try:
            content = yaml.safe_load(written)
        except yaml.YAMLError as problem:
            words = " ".join(str(problem).split())
            findings.append(usage_error(path, f"neither JSON nor YAML: {words}", "correct it"))
            return None
    if not isinstance(content, dict):
        blocks = ", ".join(_BLOCKS)
        findings.append(usage_error(path, _found(content), f"write a mapping with {blocks}"))
        return None
    return content


def _block(kind: type, name: str, content: object, findings: list[Finding]) -> Any:  # noqa: ANN401 -- the class is the argument
    if not isinstance(content, Mapping):
        findings.append(usage_error(name, _found(content), "write a mapping"))
        return None
    checks = _CHECKS[kind]
    findings.extend(_unknown(content, tuple(checks), f"{name}."))
    values = {}
    for key, check in checks.items():
        if key not in content:
            continue
        try:
            values[key] = check(content[key])
        except ValueError as problem:
            findings.append(usage_error(f"{name}.{key}", _found(content[key]), str(problem)))
            values[key] = None
    for field in fields(kind):
        if field.name not in values and field.default is MISSING:
            findings.append(usage_error(f"{name}.{field.name}", "not there", "add it"))
            values[field.name] = None
    return kind(**values)


def _unknown(content: Mapping[Any, Any], known: tuple[str, ...], prefix: str) -> Iterator[Finding]:
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            yield usage_error(f"{prefix}{key}", "unknown key", remedy)


def _together(training: Training) -> Iterator[Finding]:
    if training.min_learning_rate > training.learning_rate:
        found = f"{training.min_learning_rate}, above the learning rate {training.learning_rate}"
        yield usage_error("training.min_learning_rate", found, "lower it")
    if training.warmup_iters > training.max_steps:
        found = f"{training.warmup_iters}, and the run has {training.max_steps} steps"
        yield usage_error("training.warmup_iters", found, "lower it, or raise max_steps")


def _found(value: object) -> str:
    return "nothing" if value is None else repr(value)[:80]
