"""Blocks of a job file as the programs in the containers read them."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from megatron_eks.plan.jobs.layout import model_shape

if TYPE_CHECKING:
    from megatron_eks.config.architecture import ModelSpec
    from megatron_eks.config.load import Json


def model_values(model: "str | ModelSpec") -> "dict[str, Json]":
    """Return a whole architecture in Megatron's names, so that no program needs our presets."""
    named = {"preset": model, "init": None} if isinstance(model, str) else _named(model)
    return {**named, **asdict(model_shape(model))}


def _named(model: "ModelSpec") -> "dict[str, Json]":
    return {"preset": model.preset, "init": model.init}
