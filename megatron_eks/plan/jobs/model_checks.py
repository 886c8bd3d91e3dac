"""What the `model` block of a job file can get wrong, and how a run starts from it.

Whether a model has a row for every token of its tokenizer, where the tokenizer is a known one.

Sources: Megatron-LM, megatron/core/tokenizers/utils/build_tokenizer.py (core_v0.19), which makes
the vocabulary from the tokenizer and not from the model; torch, `nn.Embedding`, whose look-up ends
in a device-side assert outside of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, replace

from megatron_eks.catalog.models import PRESETS, ModelShape, tokens
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices, has_errors, warning
from megatron_eks.config.job import AnyJob, FetchJob, MegatronRun, TorchRun, TrainingJob
from megatron_eks.plan.jobs.layout import model_shape, preset_of_name

# Epsilons are 1e-8 to 1e-5, widths of random weights 0.006 to 0.02.
_LIMITS = {"norm_epsilon": 1e-3, "init_method_std": 0.2}

# Of no meaning with multi_latent_attention, and without it.
_OF_GROUPS = ("num_query_groups", "kv_channels")
_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")


def unknown_preset(path: Path, name: str) -> Finding:
    """Say which preset is near, or is the one of a repository of Hugging Face."""
    preset = preset_of_name(name)
    remedy = f"write {preset}" if preset else choices(name, PRESETS)
    return Finding(Code.UNKNOWN_MODEL, path, f"unknown preset {name!r}", remedy)


def check_model(model: str | ModelSpec) -> Iterator[Finding]:
    """Yield why a model has no shape."""
    name = model if isinstance(model, str) else model.preset
    if name is not None:
        path: Path = ("model",) if isinstance(model, str) else ("model", "preset")
        if name not in PRESETS:
            problem = unknown_preset(path, name)
            if "/" in name and not preset_of_name(name):
                sizes = "or write its sizes under model (num_layers, hidden_size, ...) in its place"
                problem = replace(problem, remedy=f"{problem.remedy}; {sizes}")
            yield problem
        return
    given = set() if isinstance(model, str) else set(model.model_dump(exclude_none=True))
    required = [field.name for field in fields(ModelShape) if field.default is MISSING]
    latent = isinstance(model, ModelSpec) and model.multi_latent_attention
    needless = _OF_GROUPS if latent else ()
    missing = [name for name in required if name not in given and name not in needless]
    latents = [name for name in _LATENT if name in given]
    if latents and not latent and set(missing) <= set(_OF_GROUPS):
        found = "sizes of latent attention, and multi_latent_attention is not set"
        remedy = "set multi_latent_attention: true"
        yield Finding(Code.UNKNOWN_MODEL, ("model", latents[0]), found, remedy)
        return
    if missing:
        verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        found = f"without preset, {', '.join(missing)} {verb} missing"
        yield Finding(Code.UNKNOWN_MODEL, ("model",), found, f"add {them}, or name a preset")


def check_meaning(model: str | ModelSpec) -> Iterator[Finding]:
    """Yield what a model that has a shape says, and its architecture ignores."""
    if isinstance(model, str):
        return
    shape = model_shape(model)
    given = model.model_dump(exclude_none=True)
    for name in given:
        if name.startswith("moe_") and shape.num_experts is None:
            found, remedy = "there are no experts to choose from", "remove it, or set num_experts"
            yield Finding(Code.NO_MEANING, ("model", name), found, remedy)
        if name in _LATENT and not shape.multi_latent_attention:
            found = "attention compresses nothing"
            remedy = "remove it, or set multi_latent_attention: true"
            yield Finding(Code.NO_MEANING, ("model", name), found, remedy)
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


def check_values(model: str | ModelSpec, *, trained: bool) -> Iterator[Finding]:
    """Yield values that look like slips, and those that base weights were not trained with."""
    if isinstance(model, str):
        return
    for name, limit in _LIMITS.items():
        value = getattr(model, name)
        if value is not None and value > limit:
            found = f"{value:g}, and published models have {limit:g} at most"
            yield warning(Code.MODEL_VALUE, ("model", name), found, "mind the exponent")
    base = PRESETS.get(model.preset or "")
    if base is None or not trained:
        return
    for name in ("rotary_base", "norm_epsilon", "position_embedding_type", "normalization"):
        mine, theirs = getattr(model_shape(model), name), getattr(base, name)
        # A larger base is how models learn longer sequences.
        if mine != theirs and not (name == "rotary_base" and mine > theirs):
            found = f"{mine}, and weights of {model.preset} were trained with {theirs}"
            yield warning(Code.MODEL_VALUE, ("model", name), found, "remove it")


def check_start(job: TrainingJob) -> Iterator[Finding]:
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


def check_vocabulary(job: MegatronRun | TorchRun, others: Sequence[AnyJob]) -> Iterator[Finding]:
    """Yield a tokenizer that is not the model's: by what its name says, or what is fetched."""
    count = tokens_of(job.data.tokenizer, others)
    if count is None or has_errors(check_model(job.model)):
        return
    rows = model_shape(job.model).vocab_size
    path = ("data", "tokenizer")
    if count > rows:
        found = f"{job.data.tokenizer} has {count} tokens, and the model knows {rows}"
        remedy = "use the model's own tokenizer"
        if job.checkpoint.pretrained is None:
            remedy = f"{remedy}, or set model.vocab_size: {count}"
        yield Finding(Code.VOCABULARY, path, found, remedy)
    elif job.checkpoint.pretrained is not None and count < rows // 2:
        found = f"{job.data.tokenizer} has {count} tokens, and the weights were made with {rows}"
        remedy = "use the tokenizer that the base weights were trained with"
        yield warning(Code.VOCABULARY, path, found, remedy)


def tokens_of(tokenizer: str, others: Sequence[AnyJob]) -> int | None:
    """Return the number of tokens of a tokenizer, by what a job fetches or by its name."""
    for other in others:
        if isinstance(other, FetchJob) and other.directory == tokenizer:
            name = other.tokenizer or other.model
            return tokens(name) if name else tokens(tokenizer)
    return tokens(tokenizer)
