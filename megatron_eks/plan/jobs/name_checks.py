"""Whether folders of weights are named after the model that a job says they hold.

A name proves nothing, so it warns; what other jobs make there stands in `source_checks.py`.
"""

import re
from collections.abc import Iterator

from megatron_eks.catalog.models import PRESETS
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, warning
from megatron_eks.config.job import AnyJob, ConvertCheckpointJob, FetchJob, TrainingJob
from megatron_eks.plan.jobs.layout import preset_of_name

_NAMED = re.compile(rf"(?<![a-z0-9.])({'|'.join(map(re.escape, PRESETS))})(?![a-z0-9.])")

# Sizes of weights, which a vocabulary is not: it is padded, and grows by rows.
_SIZES = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups"),
    *("kv_channels", "num_experts", "moe_ffn_hidden_size"),
)


def check_names(job: AnyJob, fetched: str | None) -> Iterator[Finding]:
    """Yield a folder with the name of another model; `fetched` is the preset that is fetched."""
    yield from _resized(job)
    for path, place, model in _places(job, fetched):
        # Its own name beside another one: weights that went from one to the other.
        names = set(_NAMED.findall(place.rpartition("/")[2].lower()))
        if model in PRESETS and len(names) == 1 and model not in names:
            found = f"{place} has the name of {names.pop()}, and the model is {model}"
            remedy = "name the weights of this model, or the model of these weights"
            yield warning(Code.WEIGHTS, path, found, remedy)
            return


def _resized(job: AnyJob) -> Iterator[Finding]:
    """Yield sizes of a model that weights with its preset's own name do not have."""
    if not isinstance(job, TrainingJob) or not isinstance(job.model, ModelSpec):
        return
    preset = preset_of_name(job.checkpoint.pretrained or "")
    if preset is None or preset != job.model.preset:
        return
    for name in _SIZES:
        mine, theirs = getattr(job.model, name), getattr(PRESETS[preset], name)
        if mine is not None and mine != theirs:
            found = f"{mine}, and weights of {preset} have {theirs}: they do not fit"
            remedy = "remove it, or name weights of this size"
            yield warning(Code.MODEL_VALUE, ("model", name), found, remedy)


def _places(job: AnyJob, fetched: str | None) -> Iterator[tuple[Path, str, str | None]]:
    """Yield where a job reads or writes weights, and of which model."""
    if isinstance(job, ConvertCheckpointJob):
        yield ("source",), job.source, job.model
        yield ("target",), job.target, job.model
    elif isinstance(job, FetchJob):
        yield ("directory",), job.directory, fetched
    elif isinstance(job, TrainingJob) and job.checkpoint.pretrained is not None:
        model = job.model.preset if isinstance(job.model, ModelSpec) else job.model
        yield ("checkpoint", "pretrained"), job.checkpoint.pretrained, model
