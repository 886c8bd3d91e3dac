"""The weights that jobs pass on to each other: their form, model and place."""

import re
from collections.abc import Iterator, Sequence

from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, has_errors, warning
from megatron_eks.config.job import (
    AnyJob,
    ConvertCheckpointJob,
    DataPrepJob,
    FetchJob,
    MegatronBridgeJob,
    MegatronJob,
    MegatronRun,
    TorchRun,
    TrainingJob,
)
from megatron_eks.plan.jobs.corpora import check_prepared, check_tokens, check_vocabulary
from megatron_eks.plan.jobs.file_system import check_near
from megatron_eks.plan.jobs.models import (
    check_model,
    model_shape,
    preset_name,
    preset_of,
    preset_of_name,
)
from megatron_eks.plan.jobs.paths import check_ending, data_prefixes

# What the shapes of weights, or whether there are some, depend on.
_TENSORS = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups"),
    *("kv_channels", "vocab_size", "num_experts", "swiglu", "add_bias_linear"),
    "untie_embeddings_and_output_weights",
)


def check_sources(job: AnyJob, others: Sequence[AnyJob]) -> Iterator[Finding]:
    """Yield what a job reads where another one leaves something else."""
    proved = list(_proved(job, others))
    yield from proved
    if not any(finding.code is Code.WEIGHTS for finding in proved):
        yield from check_names(job, preset_of(job))


def _proved(job: AnyJob, others: Sequence[AnyJob]) -> Iterator[Finding]:
    """Yield what other jobs of the cluster show."""
    yield from check_near(job, others)
    if isinstance(job, ConvertCheckpointJob):
        yield from _conversion(job, others)
    elif isinstance(job, MegatronRun | TorchRun):
        preparations = [other for other in others if isinstance(other, DataPrepJob)]
        for path, prefix in data_prefixes(job):
            known = list(check_prepared(job.data.tokenizer, path, prefix, preparations))
            counted = list(check_tokens(job, prefix, others))
            # Tokens of another number are those of another tokenizer: that is said once.
            yield from counted or known
            if isinstance(job, MegatronRun) and not known:
                yield from check_ending(path, prefix)
        yield from check_vocabulary(job, others)
        if isinstance(job, MegatronRun):
            yield from _weights(job, others)
        yield from _other_form(job, others)


# A name proves nothing, so it warns; what other jobs show goes before it.
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
        model = preset_name(job.model)
        yield ("checkpoint", "pretrained"), job.checkpoint.pretrained, model


def _weights(job: MegatronRun, others: Sequence[AnyJob]) -> Iterator[Finding]:
    base = job.checkpoint.pretrained
    path: Path = ("checkpoint", "pretrained")
    if base is None:
        return
    for other in others:
        if _hugging_face(other) == base:
            found = f"{other.name} has weights in Hugging Face's form there"
            remedy = "name the target of a convert_checkpoint job of direction import"
            yield Finding(Code.WEIGHTS, path, found, remedy)
            return
    preset = preset_name(job.model)
    for other in others:
        if (
            isinstance(other, MegatronRun)
            and other.checkpoint.directory == base
            and other is not job
        ):
            yield from _other_shape(job, other)
        if not isinstance(other, ConvertCheckpointJob) or other.target != base:
            continue
        if other.direction == "import" and preset in PRESETS and preset != other.model:
            found = f"{other.name} puts weights of {other.model} there, and the model is {preset}"
            remedy = "name the weights of this model, or the model of these weights"
            yield Finding(Code.WEIGHTS, path, found, remedy)
        elif other.direction == "import" and preset == other.model:
            yield from _changed(job, other)


def _other_shape(job: MegatronRun, other: MegatronRun) -> Iterator[Finding]:
    """Yield base weights that another job trains, of a model of another shape."""
    if has_errors((*check_model(job.model), *check_model(other.model))):
        return
    for name, mine, theirs in _differences(model_shape(job.model), model_shape(other.model)):
        found = f"{other.name} trains a model with {name} {theirs} there"
        remedy = f"name weights of this model, which has {mine}"
        yield Finding(Code.WEIGHTS, ("checkpoint", "pretrained"), found, remedy)
        return


def _differences(one: ModelShape, other: ModelShape) -> Iterator[tuple[str, object, object]]:
    """Yield the sizes by which the weights of two models differ, with both values."""
    for name in _TENSORS:
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs:
            yield name, mine, theirs


def _other_form(job: MegatronRun | TorchRun, others: Sequence[AnyJob]) -> Iterator[Finding]:
    """Yield base weights in a form that the programs of another kind of job write.

    Megatron reads its own; FSDP and DDP read a folder of Hugging Face's.
    """
    base, path = job.checkpoint.pretrained, ("checkpoint", "pretrained")
    preset = preset_name(job.model)
    for other in others:
        if isinstance(job, TorchRun) and _is_other(other, base, preset):
            found = f"{other.name} brings {preset_of(other)} there, and the model is {preset}"
            remedy = "name the weights of this model, or the model of these weights"
            yield Finding(Code.WEIGHTS, path, found, remedy)
        if isinstance(other, TorchRun) and other.checkpoint.directory == base:
            found = f"{other.name} saves there as PyTorch does, and this job reads "
            found += "Megatron's form" if isinstance(job, MegatronRun) else "Hugging Face's form"
        elif isinstance(job, TorchRun) and (
            (isinstance(other, MegatronRun) and other.checkpoint.directory == base)
            or (isinstance(other, ConvertCheckpointJob) and other.target == base)
        ):
            if isinstance(other, ConvertCheckpointJob) and other.direction == "export":
                continue
            found = f"{other.name} writes Megatron's form there, and this job reads Hugging Face's"
        else:
            continue
        remedy = "name what a job of kind fetch or convert_checkpoint makes in that form"
        yield Finding(Code.WEIGHTS, path, found, remedy)


def _is_other(job: AnyJob, place: str | None, preset: str | None) -> bool:
    """Tell whether a job fetches another model to a place than the one that is wanted there."""
    return (
        isinstance(job, FetchJob)
        and job.directory == place
        and preset in PRESETS
        and preset_of(job) not in {None, preset}
    )


def _changed(job: MegatronRun, conversion: ConvertCheckpointJob) -> Iterator[Finding]:
    """Yield what a model differs in from the base weights that it starts from."""
    if has_errors(check_model(job.model)):
        return
    base = PRESETS[conversion.model]
    for name, mine, theirs in _differences(model_shape(job.model), base):
        found = f"{mine}, and {conversion.name} brings weights of {conversion.model}: {theirs}"
        remedy = "remove it, or start without checkpoint.pretrained"
        yield Finding(Code.WEIGHTS, ("model", name), found, remedy)


def _conversion(job: ConvertCheckpointJob, others: Sequence[AnyJob]) -> Iterator[Finding]:
    fetched = any(isinstance(each, FetchJob) and each.directory == job.source for each in others)
    for other in others:
        trains = isinstance(other, TrainingJob) and other.checkpoint.directory == job.source
        fetches = isinstance(other, FetchJob) and other.directory == job.source
        if trains and job.direction == "export" and _trained(other) not in {None, job.model}:
            found = f"{other.name} trains {_trained(other)} there, and the model is {job.model}"
            yield Finding(Code.WEIGHTS, ("model",), found, f"use {_trained(other)}")
        elif job.direction == "import" and trains and not fetched:
            found = f"{other.name} saves there, in Megatron's form already"
            yield Finding(Code.WEIGHTS, ("direction",), found, "use export")
        elif job.direction == "import" and fetches and preset_of(other) not in {None, job.model}:
            found = f"{other.name} brings {preset_of(other)} there, and the model is {job.model}"
            yield Finding(Code.WEIGHTS, ("model",), found, "name the model of these weights")
        elif job.direction == "export" and fetches:
            found = f"{other.name} has it from Hugging Face, in its form already"
            yield Finding(Code.WEIGHTS, ("direction",), found, "use import")
        elif job.direction == "export" and trains and isinstance(other, MegatronJob):
            # Megatron-Bridge exports what it has saved itself, with its run_config.yaml, and the
            # program ends without that file; a run of Bridge's in the same place writes one.
            bridge = any(
                isinstance(each, MegatronBridgeJob) and each.checkpoint.directory == job.source
                for each in others
            )
            found = f"{other.name} saves without the configuration that the export reads"
            remedy = "train with kind: megatron_bridge what is to be exported"
            level = Level.WARNING if bridge else Level.ERROR
            yield Finding(Code.WEIGHTS, ("source",), found, remedy, level)


def _trained(job: AnyJob) -> str | None:
    """Return the preset that a job trains, as it is; None for a changed one."""
    if not isinstance(job, TrainingJob):
        return None
    name = job.model if isinstance(job.model, str) else None
    return name if name in PRESETS else None


def _hugging_face(job: AnyJob) -> str | None:
    """Return the directory that holds weights as Hugging Face has them, if the job has one."""
    if isinstance(job, FetchJob):
        return job.directory if job.model else None
    if isinstance(job, ConvertCheckpointJob):
        return job.source if job.direction == "import" else job.target
    return None
