"""Whether jobs find what other jobs of the same cluster leave for them, in the form they read."""

import re
from collections.abc import Iterator, Sequence

from megatron_eks.catalog.models import PRESETS
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
from megatron_eks.plan.jobs.layout import model_shape, preset_of_name
from megatron_eks.plan.jobs.model_checks import check_model, check_vocabulary, tokens_of
from megatron_eks.plan.jobs.near_checks import check_names, check_near
from megatron_eks.plan.jobs.path_checks import check_ending, check_tokenizer, data_prefixes

# What the shapes of weights, or whether there are some, depend on.
_TENSORS = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "kv_channels",
    "vocab_size",
    "num_experts",
    "swiglu",
    "add_bias_linear",
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
            known = list(_data(job.data.tokenizer, path, prefix, preparations))
            counted = list(_other_words(job, prefix, others))
            # Tokens of another number are those of another tokenizer: that is said once.
            yield from counted or known
            if isinstance(job, MegatronRun) and not known:
                yield from check_ending(path, prefix)
        yield from check_vocabulary(job, others)
        if isinstance(job, MegatronRun):
            yield from _weights(job, others)
        yield from _other_form(job, others)


def _data(
    tokenizer: str, path: Path, prefix: str, preparations: Sequence[DataPrepJob]
) -> Iterator[Finding]:
    """Compare a data set that is read with those that are made."""
    for preparation in preparations:
        written = _written(preparation)
        clean = not any(check_tokenizer((), preparation.tokenizer))
        if prefix in written and clean and preparation.tokenizer != tokenizer:
            found = f"{preparation.name} makes its tokens with {preparation.tokenizer}"
            remedy = "use the same tokenizer, or the numbers mean other words"
            yield warning(Code.DATA_SOURCE, ("data", "tokenizer"), found, remedy)
    if any(prefix in _written(each) for each in preparations):
        return
    for preparation in preparations:
        made, base = _written(preparation), preparation.output_prefix
        if base.endswith("_document"):
            continue  # it has a finding of its own
        if prefix == base:
            found = f"{preparation.name} writes {made[0]}"
            yield Finding(Code.DATA_SOURCE, path, found, f"use {made[0]}")
        elif re.fullmatch(rf"{re.escape(base)}_[^_/]+_document", prefix):
            found = f"{preparation.name} writes {' and '.join(made)}, and no job writes {prefix}"
            remedy = f"use {made[0]}, or name the key in json_keys of {preparation.name}"
            yield warning(Code.DATA_SOURCE, path, found, remedy)


def _other_words(
    job: MegatronRun | TorchRun, prefix: str, others: Sequence[AnyJob]
) -> Iterator[Finding]:
    """Yield data whose numbers are another tokenizer's for certain: of another size."""
    tokenizer = job.data.tokenizer
    count, vocabulary = tokens_of(tokenizer, others), None
    if not has_errors(check_model(job.model)):
        vocabulary = model_shape(job.model).vocab_size
    for other in others:
        if not isinstance(other, DataPrepJob) or prefix not in _written(other):
            continue
        theirs = tokens_of(other.tokenizer, others)
        if count is not None and theirs is not None and count != theirs:
            found = f"{count} tokens, and {other.name} made the data with {theirs}"
            again = f"prepare the data again: set tokenizer: {tokenizer} in {other.name}"
            remedy = f"use {other.tokenizer}, or prepare the data with {tokenizer}"
            if vocabulary in {count, theirs}:
                remedy = again if vocabulary == count else f"use {other.tokenizer}"
            yield Finding(Code.VOCABULARY, ("data", "tokenizer"), found, remedy)


def _written(preparation: DataPrepJob) -> list[str]:
    return [f"{preparation.output_prefix}_{key}_document" for key in preparation.json_keys]


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
    preset = job.model.preset if isinstance(job.model, ModelSpec) else job.model
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
    mine, theirs = model_shape(job.model), model_shape(other.model)
    for name in _TENSORS:
        if getattr(mine, name) != getattr(theirs, name):
            found = f"{other.name} trains a model with {name} {getattr(theirs, name)} there"
            remedy = f"name weights of this model, which has {getattr(mine, name)}"
            yield Finding(Code.WEIGHTS, ("checkpoint", "pretrained"), found, remedy)
            return


def _other_form(job: MegatronRun | TorchRun, others: Sequence[AnyJob]) -> Iterator[Finding]:
    """Yield base weights in a form that the programs of another kind of job write.

    Megatron reads its own; FSDP and DDP read a folder of Hugging Face's.
    """
    base, path = job.checkpoint.pretrained, ("checkpoint", "pretrained")
    preset = job.model.preset if isinstance(job.model, ModelSpec) else job.model
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
    shape, base = model_shape(job.model), PRESETS[conversion.model]
    for name in _TENSORS:
        mine, theirs = getattr(shape, name), getattr(base, name)
        if mine != theirs:
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


def preset_of(job: AnyJob) -> str | None:
    """Return the preset that a fetched model's name is; None where it is none of them."""
    return preset_of_name(job.model or "") if isinstance(job, FetchJob) else None


def _hugging_face(job: AnyJob) -> str | None:
    """Return the directory that holds weights as Hugging Face has them, if the job has one."""
    if isinstance(job, FetchJob):
        return job.directory if job.model else None
    if isinstance(job, ConvertCheckpointJob):
        return job.source if job.direction == "import" else job.target
    return None
