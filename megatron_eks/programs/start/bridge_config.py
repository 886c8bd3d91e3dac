"""A job's blocks as values of a Megatron-Bridge configuration, and how they get into one.

Names: megatron/bridge/training/config.py of Megatron-Bridge 0.6, and the classes of Megatron core
0.19 that it builds on.
"""

import dataclasses
import difflib
import enum
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from megatron_eks.catalog.job_keys import SAME
from megatron_eks.catalog.models import PRESETS
from megatron_eks.programs.program import Finding, usage_error

Values = dict[str, Any]
Config: TypeAlias = Any
"""A recipe's configuration, of classes that are not here to be looked at."""

_PRECISIONS = {
    "bf16": "bf16_mixed",
    "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
_PRECISION = "mixed_precision"
_COMPARED = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads")


def values_of(job: Mapping[str, Any]) -> Values:
    """Return the values by dotted name, the job's overrides last."""
    values: Values = {}
    for place, key in SAME:
        block, _, name = key.partition(".")
        value = (job.get(block) or {}).get(name)
        if value is not None:
            values[place] = value
    layout = job.get("parallelism") or {}
    split = layout.get("tensor", 1) > 1 and layout.get("sequence_parallel", True)
    values["model.sequence_parallel"] = split
    training = job.get("training") or {}
    if word := training.get("precision"):
        values["mixed_precision"] = _PRECISIONS.get(word, word)
    if granularity := training.get("recompute"):
        values["model.recompute_granularity"] = None if granularity == "none" else granularity
    values.update(_data(job.get("data") or {}))
    if "checkpoint.save" in values:
        # The recipes' own place is below the working directory, which pods may not write.
        values["logger.tensorboard_dir"] = f"{values['checkpoint.save']}/tensorboard"
        # It would count damaged ones; retention removes old checkpoints.
        values["checkpoint.most_recent_k"] = -1
    # SIGTERM, which an eviction sends, saves a checkpoint.
    values["train.exit_signal_handler"] = True
    overrides = job.get("overrides") or {}
    # Else a checkpoint of another schedule is refused, and more iterations are another one.
    kept = bool(overrides.get("scheduler.use_checkpoint_opt_param_scheduler"))
    values["scheduler.override_opt_param_scheduler"] = not kept
    values.update(overrides)
    return values


def apply(
    config: Config, values: Mapping[str, object], precision: Callable[[str], object] | None = None
) -> Iterator[Finding]:
    """Set every value that has a place of its kind; yield the others.

    A recipe or a job names its precision by a word; `precision` makes the values behind it, for
    where one of them is to be set.
    """
    if precision and any(name.startswith(f"{_PRECISION}.") for name in values):
        config.mixed_precision = precision(str(values.get(_PRECISION, config.mixed_precision)))
        values = {name: value for name, value in values.items() if name != _PRECISION}
    for name, value in values.items():
        yield from _set(config, name, value)


def compare_model(config: Config, model: object) -> Iterator[Finding]:
    """Compare the model that the recipe builds with the one that the job names."""
    own: Mapping[str, object] = model if isinstance(model, Mapping) else {"preset": model}
    preset = PRESETS.get(str(own.get("preset")))
    for name in _COMPARED:
        has, wanted = getattr(config.model, name, None), own.get(name, getattr(preset, name, None))
        if None not in (wanted, has) and has != wanted:
            found = f"its model has {name} {has}, and the job's model {wanted}"
            remedy = "name the recipe of this model, or correct the job's model"
            yield usage_error("--recipe", found, remedy)


def _data(data: Mapping[str, Any]) -> Values:
    values: Values = {}
    if blend := data.get("blend"):
        prefixes, weights = ([each[part] for each in blend] for part in ("prefix", "weight"))
        values["dataset.blend"] = (prefixes, weights)
    elif data.get("prefix"):
        values["dataset.blend"] = ([data["prefix"]], None)
    if data.get("split"):
        values["dataset.split"] = ",".join(f"{part:g}" for part in data["split"])
    if data.get("tokenizer"):
        values["tokenizer.tokenizer_type"] = "HuggingFaceTokenizer"
        values["tokenizer.tokenizer_model"] = data["tokenizer"]
        # A recipe's placeholder; the tokenizer knows.
        values["tokenizer.vocab_size"] = None
    return values


def _set(config: Config, name: str, value: object) -> Iterator[Finding]:
    place, now, parts = None, config, name.split(".")
    for depth, part in enumerate(parts, 1):
        place = now
        if place is None:
            found = f"{'.'.join(parts[: depth - 1])} is not used by this recipe"
            yield usage_error(name, found, "remove the override")
            return
        if part not in _fields(place):
            yield _unknown(".".join(parts[:depth]), part, _fields(place))
            return
        now = getattr(place, part)
    kinds = _enumerations(place, parts[-1])
    if kinds and isinstance(value, str):
        members = {name: member for kind in kinds for name, member in kind.__members__.items()}
        if value not in members:
            remedy = f"write one of {', '.join(members)}"
            yield usage_error(name, f"{value!r} is no member of {kinds[0].__name__}", remedy)
            return
        value = members[value]
    elif not _fits(now, value):
        found = f"{value!r} is {type(value).__name__}, and the recipe has {now!r}"
        yield usage_error(name, found, f"write a value of type {type(now).__name__}")
        return
    setattr(place, parts[-1], value)


def _enumerations(place: object, name: str) -> list[type[enum.Enum]]:
    """Return the enumerations that a value is of, or is declared to be of where it is None."""
    declared: list[object] = [type(getattr(place, name))]
    for field in dataclasses.fields(place) if dataclasses.is_dataclass(place) else ():
        if field.name == name and not isinstance(field.type, str):
            declared += [field.type, *typing.get_args(field.type)]
    kinds = [each for each in declared if isinstance(each, type) and issubclass(each, enum.Enum)]
    return [] if str in declared else kinds


def _fields(place: object) -> set[str]:
    """Return the names that can be set: a wrong one would be set too, and change nothing."""
    if dataclasses.is_dataclass(place):
        return {field.name for field in dataclasses.fields(place)}
    return {name for name in getattr(place, "__dict__", {}) if not name.startswith("_")}


def _fits(now: object, value: object) -> bool:
    """Tell whether a value is of the kind that is there; None tells no kind."""
    if value is None or not isinstance(now, int | float | str | enum.Enum):
        return True
    if isinstance(now, bool) or isinstance(value, bool):
        return type(now) is type(value)
    return isinstance(value, int | float if isinstance(now, float) else type(now))


def _unknown(place: str, name: str, known: set[str]) -> Finding:
    close = difflib.get_close_matches(name, known, n=1)
    names = ", ".join(sorted(known)[:12])
    remedy = f"did you mean {close[0]!r}?" if close else f"known are {names}"
    return usage_error(place, "no such field", remedy)
