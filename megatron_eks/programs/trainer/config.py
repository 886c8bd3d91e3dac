"""The trainers' configuration: what a file may say, and the words for what is wrong with it."""

import difflib
import json
import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    ValidationError,
    model_validator,
)

from megatron_eks.programs.program import Finding, usage_error

_JOB_KEYS = {"schema_version", "kind", "name", "pool", "nodes", "gpus_per_node", "image"}


def _number(value: object) -> object:
    """YAML 1.1 makes a text of 1e-5, which is a number too."""
    return float(value) if isinstance(value, str) else value


def _of_preset(model: object) -> object:
    return {"preset": model} if isinstance(model, str) else model


Number = Annotated[float, BeforeValidator(_number), Field(ge=0)]
Positive = Annotated[Number, Field(gt=0)]
Fraction = Annotated[Number, Field(lt=1)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Training(_Block):
    """Batch, schedule and optimizer."""

    max_steps: PositiveInt = 100
    train_batch_size: PositiveInt = 1
    """Sequences a GPU works on in a step."""
    sequence_length: PositiveInt = 2048
    learning_rate: Positive = 1e-4
    min_learning_rate: Number = 1e-5
    lr_schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_iters: NonNegativeInt = 0
    weight_decay: Number = 0.2
    adam_beta1: Fraction = 0.9
    adam_beta2: Fraction = 0.95
    clip_grad: Number = 1.0
    """0 does not clip."""
    precision: Literal["bf16"] = "bf16"
    sharding: Literal["full", "hybrid"] = "full"
    activation_checkpointing: bool = True
    seed: NonNegativeInt = 42
    validation_interval: PositiveInt = 25
    log_interval: PositiveInt = 1

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min_learning_rate > self.learning_rate:
            raise ValueError(f"min_learning_rate is above learning_rate {self.learning_rate}")
        if self.warmup_iters > self.max_steps:
            raise ValueError(f"warmup_iters are more than all {self.max_steps} max_steps")
        return self


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


class Data(_Block):
    """What is trained on."""

    dataset: Text
    tokenizer: Text
    configuration: Text | None = None
    num_workers: NonNegativeInt = 2
    """Batches that are prepared ahead; 0 prepares each when it is needed."""


class Checkpoint(_Block):
    """Where a run saves and resumes, and what it starts from."""

    directory: Text
    pretrained: Text | None = None
    """A directory of Hugging Face safetensors."""
    interval: PositiveInt = 500
    keep_last: PositiveInt = 3
    format: Literal["torch_dist"] = "torch_dist"
    async_save: bool = True
    s3_uri: Text | None = None
    """Where checkpoint_sync copies whole ones to, beside the training."""


class Runtime(BaseModel):
    """Of a job file's block, what a trainer reads."""

    distributed_timeout_minutes: PositiveInt = 10


class Config(_Block):
    """A file without mistakes; `model` is checked by shape.py."""

    model: Annotated[dict[str, Any], BeforeValidator(_of_preset)]
    data: Data
    checkpoint: Checkpoint
    training: Training = Training()
    runtime: Runtime = Runtime()

    @property
    def timeout_minutes(self) -> int:
        """How long a collective may take."""
        return self.runtime.distributed_timeout_minutes


def read_config(path: Path, findings: list[Finding]) -> Config | None:
    """Read a file; return None if anything is wrong, which `findings` then has in words."""
    try:
        content = _parse(path.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            content = {key: content[key] for key in content if key not in _JOB_KEYS}
        return Config.model_validate(content)
    except OSError as problem:
        words = f"cannot be read: {problem.strerror}"
        findings.append(usage_error(path, words, "correct --config"))
    except ValidationError as problem:
        blocks = (Config, Training, Data, Checkpoint)
        known = [name for block in blocks for name in block.model_fields]
        findings.extend(mistakes(problem, known, ""))
    except ValueError as problem:
        findings.append(usage_error(path, " ".join(str(problem).split()), "correct it"))
    return None


def _parse(written: str) -> object:
    """Read JSON or YAML; raise ValueError."""
    try:
        return json.loads(written)
    except ValueError:
        import yaml  # noqa: PLC0415 -- JSON does without it
    try:
        return yaml.safe_load(written)
    except yaml.YAMLError as problem:
        raise ValueError(f"neither JSON nor YAML: {problem}") from problem


def mistakes(problem: ValidationError, known: Collection[str], prefix: str) -> Iterator[Finding]:
    """Say what pydantic found, with places below a prefix; `known` are keys that could be meant."""
    for each in problem.errors(include_url=False):
        place = f"{prefix}{'.'.join(map(str, each['loc']))}" or "the configuration"
        said = each["msg"].removeprefix("Value error, ")
        match each["type"]:
            case "extra_forbidden" | "unexpected_keyword_argument":
                near = difflib.get_close_matches(str(each["loc"][-1]), known, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else "remove it"
                yield usage_error(place, "unknown key", remedy)
            case "missing":
                yield usage_error(place, "not there", "add it")
            case "value_error" if isinstance(each["input"], dict):
                yield usage_error(place, said, "correct one of them")
            case _:
                yield usage_error(place, repr(each["input"])[:80], f"{said[:1].lower()}{said[1:]}")
