"""The weights that jobs pass on to each other: their form, model and place."""

from collections.abc import Iterator, Sequence

from megatron_eks.catalog.models import PRESETS
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Level, has_errors
from megatron_eks.config.job import (
    AnyJob,
    ConvertCheckpointJob,
    FetchJob,
    MegatronBridgeJob,
    MegatronJob,
    MegatronRun,
    Run,
    TrainingJob,
)
from megatron_eks.plan.jobs import models, sources

# What the shapes of weights, or whether there are some, depend on.
_TENSORS = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups"),
    *("kv_channels", "vocab_size", "num_experts", "swiglu", "add_bias_linear"),
    "untie_embeddings_and_output_weights",
)


_HUGGING_FACE, _MEGATRON, _PYTORCH = "Hugging Face's", "Megatron's", "PyTorch's"
_OTHER = {"import": "export", "export": "import"}


def check_sources(job: AnyJob, others: Sequence[AnyJob]) -> Findings:
    """Yield what a job reads where another one leaves something else."""
    if isinstance(job, ConvertCheckpointJob):
        yield from _conversion(job, others)
    elif isinstance(job, Run):
        for path, prefix in sources.data_prefixes(job):
            known = list(sources.check_prepared(job, path, prefix, others))
            yield from known
            if isinstance(job, MegatronRun) and not known:
                yield from sources.check_ending(path, prefix)
        yield from sources.check_vocabulary(job, others)
        yield from _base(job, others)


def _left(job: AnyJob, place: str) -> tuple[str | None, str | None]:
    form, at, model = None, None, None
    if isinstance(job, FetchJob) and job.model:
        form, at, model = _HUGGING_FACE, job.directory, models.preset_of_name(job.model)
    elif isinstance(job, ConvertCheckpointJob):
        imports, model = job.direction == "import", job.model
        form, at = _HUGGING_FACE, job.source if imports else job.target
        if imports and place == job.target:
            form, at = _MEGATRON, job.target
    elif isinstance(job, TrainingJob):
        form = _MEGATRON if isinstance(job, MegatronRun) else _PYTORCH
        at = job.checkpoint.directory
        # A changed preset is none.
        model = job.model if isinstance(job.model, str) and job.model in PRESETS else None
    return (form, model) if at == place else (None, None)


def _base(job: Run, others: Sequence[AnyJob]) -> Findings:
    base, path = job.checkpoint.pretrained, ("checkpoint", "pretrained")
    if base is None:
        return
    wanted = _MEGATRON if isinstance(job, MegatronRun) else _HUGGING_FACE
    preset = models.preset_name(job.model)
    for other in (each for each in others if each is not job):
        form, model = _left(other, base)
        if form not in {None, wanted}:
            found = f"{other.name} has weights in {form} form there, and this job reads {wanted}"
            remedy = "name what a job of kind fetch or convert_checkpoint makes in that form"
            yield Finding(Code.WEIGHTS, path, found, remedy)
            return
        if form and isinstance(other, TrainingJob):
            for name, mine, theirs in [*_differences(job.model, other.model)][:1]:
                found = f"{other.name} trains a model with {name} {theirs} there"
                remedy = f"name weights of this model, which has {mine}"
                yield Finding(Code.WEIGHTS, path, found, remedy)
        elif model and preset in PRESETS and model != preset:
            found = f"{other.name} brings {model} there, and the model is {preset}"
            remedy = "name the weights of this model, or the model of these weights"
            yield Finding(Code.WEIGHTS, path, found, remedy)
        elif model and model == preset and isinstance(job, MegatronRun):
            for name, mine, theirs in _differences(job.model, model):
                found = f"{mine}, and {other.name} brings weights of {model}: {theirs}"
                remedy = "remove it, or start without checkpoint.pretrained"
                yield Finding(Code.WEIGHTS, ("model", name), found, remedy)


def _differences(
    one: str | ModelSpec, other: str | ModelSpec
) -> Iterator[tuple[str, object, object]]:
    if has_errors((*models.check_model(one), *models.check_model(other))):
        return
    shapes = models.model_shape(one), models.model_shape(other)
    for name in _TENSORS:
        mine, theirs = (getattr(each, name) for each in shapes)
        if mine != theirs:
            yield name, mine, theirs


def _conversion(job: ConvertCheckpointJob, others: Sequence[AnyJob]) -> Findings:
    imports = job.direction == "import"
    there = [(each, *_left(each, job.source)) for each in others]
    makers = [each for each in there if isinstance(each[0], FetchJob | TrainingJob) and each[1]]
    fetched = any(form == _HUGGING_FACE for _, form, _ in makers)
    for other, form, model in makers:
        right = (form == _HUGGING_FACE) is imports
        if right and model not in {None, job.model}:
            found = f"{other.name} brings {model} there, and the model is {job.model}"
            yield Finding(Code.WEIGHTS, ("model",), found, f"use {model}")
        elif not right and not (imports and fetched):
            found = f"{other.name} has weights in {form} form there already"
            yield Finding(Code.WEIGHTS, ("direction",), found, f"use {_OTHER[job.direction]}")
        elif not imports and isinstance(other, MegatronJob):
            # Megatron-Bridge exports what it has saved itself, with its run_config.yaml, and the
            # program ends without that file; a run of Bridge's in the same place writes one.
            bridge = any(isinstance(each, MegatronBridgeJob) for each, *_ in makers)
            found = f"{other.name} saves without the configuration that the export reads"
            remedy = "train with kind: megatron_bridge what is to be exported"
            level = Level.WARNING if bridge else Level.ERROR
            yield Finding(Code.WEIGHTS, ("source",), found, remedy, level)
