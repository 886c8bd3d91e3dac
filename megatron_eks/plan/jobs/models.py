"""The `model` block: its shape, what is refused of it, and what a run starts from."""

import re
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace

from megatron_eks.catalog.megatron_conflicts import TABLE
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, choices, closest, warning
from megatron_eks.config.job import MegatronBridgeJob, MegatronRun, TrainingJob

# Organizations and releases that Hugging Face's names have around a preset's.
_AROUND = re.compile(r"^meta-|-(hf|base|instruct|v0\.\d)$")

# Of no meaning with multi_latent_attention, and without it.
_OF_GROUPS = ("num_query_groups", "kv_channels")
_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
_MOST_LISTED = 10_000
BY_HAND = frozenset(TABLE["stages_by_hand"].split())
"""Settings with which stages have other layers than the quotient."""

# Each counts as a layer.
_ENDS = {"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"}
# Bridge's names for two of them.
_BRIDGE = BY_HAND | {"num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"}
# Recipes of Megatron-Bridge 0.6 with stages of their own: megatron/bridge/recipes, by what they
# begin with. The first counts embedding and loss as a layer each (126 and 2 for 16 stages).
_WITH_ENDS = ("llama31_405b_",)
_OWN_STAGES = ("deepseek_v3_", "glm5", "glm_45v", "kimi", "moonlight_", "nemotron")


def preset_of_name(name: str) -> str | None:
    """Return the preset of a model by Hugging Face's name, or of a folder that is called so."""
    plain = _AROUND.sub("", name.rpartition("/")[2].lower())
    return plain if plain in PRESETS else None


def preset_name(model: str | ModelSpec) -> str | None:
    """Return the preset that a model is, or starts from; None of a whole mapping."""
    return model.preset if isinstance(model, ModelSpec) else model


def model_shape(model: str | ModelSpec) -> ModelShape:
    """Resolve a preset's name, a preset with changes, or a whole mapping.

    Raises KeyError for an unknown preset and TypeError for an incomplete mapping; the checks come
    first and say both in words.
    """
    if isinstance(model, str):
        return PRESETS[model]
    given, names = model.model_dump(exclude_none=True), {each.name for each in fields(ModelShape)}
    changes = {name: value for name, value in given.items() if name in names}
    if model.preset:
        return replace(PRESETS[model.preset], **changes)
    if model.multi_latent_attention:
        # Latent attention has sizes of its own, and a key and a value for every head.
        changes.setdefault("num_query_groups", changes.get("num_attention_heads"))
        changes.setdefault("kv_channels", model.v_head_dim or ModelShape.v_head_dim)
    return ModelShape(**changes)


def unknown_preset(path: Path, name: str) -> Finding:
    """Say which preset is near, or is the one of a repository of Hugging Face."""
    preset = preset_of_name(name)
    remedy = f"write {preset}" if preset else choices(name, PRESETS)
    return Finding(Code.UNKNOWN_MODEL, path, f"unknown preset {name!r}", remedy)


def check_model(model: str | ModelSpec) -> Findings:
    """Yield why a model has no shape."""
    name = preset_name(model)
    if name in PRESETS:
        yield from _check_pattern(model_shape(model))
    elif name is not None:
        problem = unknown_preset(
            ("model",) if isinstance(model, str) else ("model", "preset"), name
        )
        if not preset_of_name(name) and ("/" in name or not closest(name, PRESETS)):
            sizes = "or write its sizes under model (num_layers, hidden_size, ...) in its place"
            problem = replace(problem, remedy=f"{problem.remedy}; {sizes}")
        yield problem
    elif isinstance(model, ModelSpec):
        yield from _check_sizes(model)


def _check_sizes(model: ModelSpec) -> Findings:
    given = set(model.model_dump(exclude_none=True))
    required = [field.name for field in fields(ModelShape) if field.default is MISSING]
    needless = _OF_GROUPS if model.multi_latent_attention else ()
    missing = [name for name in required if name not in given and name not in needless]
    latents = [name for name in _LATENT if name in given]
    if latents and not model.multi_latent_attention and set(missing) <= set(_OF_GROUPS):
        found = "sizes of latent attention, and multi_latent_attention is not set"
        remedy = "set multi_latent_attention: true"
        yield Finding(Code.UNKNOWN_MODEL, ("model", latents[0]), found, remedy)
    elif missing:
        found = f"without preset, missing: {', '.join(missing)}"
        yield Finding(Code.UNKNOWN_MODEL, ("model",), found, "add them, or name a preset")
    else:
        yield from _check_pattern(model_shape(model))


def _check_pattern(shape: ModelShape) -> Findings:
    pattern, path = shape.hybrid_layer_pattern, ("model", "hybrid_layer_pattern")
    if not pattern:
        return
    if len(pattern) != shape.num_layers:
        found = f"{len(pattern)} letters for {shape.num_layers} layers"
        yield Finding(Code.UNKNOWN_MODEL, path, found, f"set num_layers: {len(pattern)}")
    for letter, name in (("M", "mamba_num_heads"), ("E", "num_experts")):
        if letter in pattern and not getattr(shape, name):
            found = f"{letter} stands for layers whose {name} is missing"
            yield Finding(Code.UNKNOWN_MODEL, path, found, f"add model.{name}")


def check_meaning(model: str | ModelSpec) -> Findings:
    """Yield what a model that has a shape says, and its architecture ignores."""
    if isinstance(model, str):
        return
    shape = model_shape(model)
    for name in model.model_dump(exclude_none=True):
        if name.startswith("moe_") and shape.num_experts is None:
            found, remedy = "there are no experts to choose from", "remove it, or set num_experts"
            yield Finding(Code.NO_MEANING, ("model", name), found, remedy)
        if name in _LATENT and not shape.multi_latent_attention:
            remedy = "remove it, or set multi_latent_attention: true"
            yield Finding(Code.NO_MEANING, ("model", name), "attention compresses nothing", remedy)
    groups = model.num_query_groups
    if groups and shape.multi_latent_attention and groups != shape.num_attention_heads:
        found = "latent attention has a key and a value for every head, and no groups"
        yield Finding(Code.NO_MEANING, ("model", "num_query_groups"), found, "remove it")
    often = shape.moe_layer_freq
    if isinstance(often, tuple) and len(often) != shape.num_layers:
        found = f"{len(often)} entries for {shape.num_layers} layers"
        path: Path = ("model", "moe_layer_freq")
        yield Finding(Code.LAYOUT_EXPERTS, path, found, "write one for each layer, or a number")
    elif isinstance(often, tuple) and shape.num_experts is not None and 1 not in often:
        found = f"no layer has any of the {shape.num_experts} experts"
        path = ("model", "moe_layer_freq")
        yield Finding(Code.NO_MEANING, path, found, "write 1 for the layers that have them")
    if model.rotary_base is not None and shape.position_embedding_type != "rope":
        found = f"{shape.position_embedding_type} positions have no rotary base"
        remedy = "remove it, or set position_embedding_type: rope"
        yield Finding(Code.NO_MEANING, ("model", "rotary_base"), found, remedy)


def check_positions(model: str | ModelSpec, length: int) -> Findings:
    """Yield sequences that are longer than the model knows positions."""
    most = model_shape(model).max_position_embeddings
    if length > most:
        longer = f"max_position_embeddings: {length}"
        changed = f"model: {{preset: {model}, {longer}}}"
        longer = changed if isinstance(model, str) else f"model.{longer}"
        found, remedy = f"{length} positions, and the model has {most}", f"use at most {most}"
        path = ("training", "sequence_length")
        yield Finding(Code.LAYOUT_SEQUENCE, path, found, f"{remedy}, or {longer}")


def check_values(job: TrainingJob) -> Findings:
    """Yield what means nothing, is a slip, or is not what base weights were trained with."""
    model, trained = job.model, job.checkpoint.pretrained is not None
    yield from check_meaning(model)
    if model_shape(model).hybrid_layer_pattern:
        path, found = ("model", "hybrid_layer_pattern"), "its programs build transformers alone"
        remedy = "use kind: torchrun with a program that builds it"
        yield Finding(Code.NOT_SUPPORTED_YET, path, found, remedy)
    if isinstance(model, str):
        return
    base = PRESETS.get(model.preset or "")
    if base is None or not trained:
        return
    for name in ("rotary_base", "norm_epsilon", "position_embedding_type", "normalization"):
        mine, theirs = getattr(model_shape(model), name), getattr(base, name)
        # A larger base is how models learn longer sequences.
        if mine != theirs and not (name == "rotary_base" and mine > theirs):
            found = f"{mine}, and weights of {model.preset} were trained with {theirs}"
            yield warning(Code.MODEL_VALUE, ("model", name), found, "remove it")


def check_start(job: TrainingJob) -> Findings:
    """Yield where the job file contradicts itself about what the run starts from."""
    init = job.model.init if isinstance(job.model, ModelSpec) else None
    path: Path = ("model", "init")
    if init == "pretrained" and job.checkpoint.pretrained is None:
        found = "no weights to start from"
        yield Finding(Code.WEIGHTS, path, found, "name their folder: checkpoint.pretrained")
    if init == "config" and job.checkpoint.pretrained is not None:
        found = "random weights, and checkpoint.pretrained names others"
        yield Finding(Code.WEIGHTS, path, found, "use pretrained, or remove the other")
    if job.checkpoint.pretrained == job.checkpoint.directory:
        found = "base weights and checkpoints stand in the same directory"
        remedy = "save elsewhere: retention would delete the base weights"
        yield Finding(Code.SHARED_PATH, ("checkpoint", "directory"), found, remedy)


def counted_layers(job: MegatronRun, model: ModelShape) -> int | None:
    """Return the layers that stages divide evenly; None where something says which each has."""
    if isinstance(job, MegatronBridgeJob):
        blocks = (name.partition(".") for name in job.overrides)
        by_hand = any(block == "model" and field in _BRIDGE for block, _, field in blocks)
        ends = 2 * job.recipe.startswith(_WITH_ENDS)
        return None if by_hand or job.recipe.startswith(_OWN_STAGES) else model.num_layers + ends
    by_hand = BY_HAND.isdisjoint(_settings(job.extra_args))
    return model.num_layers if by_hand else None  # Megatron itself judges


def divided_layers(arguments: Sequence[str], model: ModelShape) -> int | None:
    """Return the layers, embedding and loss where they count, that stages divide evenly."""
    ends = _settings(arguments) & BY_HAND
    return None if ends - _ENDS else model.num_layers + len(ends)


def _settings(arguments: Sequence[str]) -> set[str | None]:
    return {OPTIONS.get(word.partition("=")[0]) for word in arguments}


def divisors(number: int) -> list[int]:
    """Return what divides a number, the least first."""
    return [value for value in range(1, number + 1) if number % value == 0]


def listed_divisors(number: int) -> str:
    """List the divisors of a number."""
    few = number <= _MOST_LISTED
    return ", ".join(map(str, divisors(number))) if few else f"its divisors: {number}"
