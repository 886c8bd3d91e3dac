"""Whether the overrides of a Megatron-Bridge job name values that its configuration has."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TypeAlias

from megatron_eks.catalog.bridge_fields import FIELDS, NOT_OF_LLAMA, VERSION, Field
from megatron_eks.catalog.megatron_conflicts import (
    ALWAYS,
    FLEX_BETWEEN_NODES,
    IDLE,
    OF_BRIDGE,
    PARTIAL,
    RANDOM,
    TABLE,
    TRIALS,
    Conflict,
)
from megatron_eks.catalog.megatron_options import WORDS
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path, choices, has_errors, warning
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.models import check_model, model_shape

Value: TypeAlias = bool | float | str
"""What a job file may write."""

_OUR_IMAGE = "megatron"
# Longer lists than this help nobody; then the field's own words find its neighbours.
_ALL, _SOME = 30, 5
_WRITTEN = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a word"}
_KNOWN_ELSEWHERE = {"env_vars": "set runtime.env"}
# Words that Megatron asks for by name, where the field takes any (get_megatron_optimizer).
_MORE_CHOICES = {"optimizer.optimizer": WORDS["--optimizer"]}


def level_in(image: str) -> Level:
    """Return how sure a finding is: an image of one's own may have another Megatron-Bridge."""
    return Level.ERROR if image == _OUR_IMAGE else Level.WARNING


def check_override(image: str, name: str, value: Value) -> Iterator[Finding]:
    """Yield an override that the pinned Megatron-Bridge has no place for, or another kind of."""
    problem = _problem(name, value)
    if problem is not None:
        found, remedy = problem
        yield Finding(Code.OVERRIDE, ("overrides", name), found, remedy, level_in(image))


def _problem(name: str, value: Value) -> tuple[str, str] | None:
    """Return what is wrong, and what to do."""
    block, _, rest = name.partition(".")
    first = rest.partition(".")[0]
    if (plain := name.lstrip("+~")) != name:
        return "+ and ~ are signs of Hydra", f"write {plain}"
    if block in _KNOWN_ELSEWHERE:
        return f"{block} is the job file's", _KNOWN_ELSEWHERE[block]
    fields = FIELDS.get(block)
    if fields is None:
        return f"Megatron-Bridge {VERSION} has no block {block}", choices(block, FIELDS)
    field = fields.get(first)
    if field is None:
        return f"{block} of Megatron-Bridge {VERSION} has no {first}", _near(block, first, fields)
    if first != rest:
        # A value inside a value, whose class is the recipe's choice.
        return None
    return _value(name, value, field)


def _value(name: str, value: Value, field: Field) -> tuple[str, str] | None:
    if not field.kinds:
        return f"{name} takes what a job file cannot write", "leave it to the recipe"
    if not field.kinds & _kinds(value):
        kinds = field.kinds - {"int"} if "float" in field.kinds else field.kinds
        wanted = " or ".join(words for kind, words in _WRITTEN.items() if kind in kinds)
        return f"{value!r}, and {name} takes {wanted}", f"write {wanted}"
    known = field.choices or _MORE_CHOICES.get(name, ())
    if isinstance(value, str) and known and value not in known:
        return f"{name} takes no {value!r}", choices(value, known)
    return None


def _near(block: str, name: str, fields: Mapping[str, object]) -> str:
    if len(fields) <= _ALL:
        return choices(name, fields)
    words = set(name.split("_"))
    near = get_close_matches(name, fields, _SOME)
    near += sorted(each for each in fields if words & set(each.split("_")) and each not in near)
    if not near:
        return f"name one of its {len(fields)} values: megatron.bridge, ConfigContainer.{block}"
    rest = f" near are {', '.join(near[1:_SOME])}" if near[1:] else ""
    return f"did you mean {near[0]!r}?{rest}"


def _kinds(value: Value) -> set[str]:
    """Return what a value may stand for: a whole number is a number too."""
    name = type(value).__name__
    return {"int", "float"} if name == "int" else {name}


# What harms a run is a setting of `catalog/megatron_conflicts.txt` by Bridge's name. Sources: as
# there; Megatron-Bridge, megatron/bridge/training/checkpointing.py and config.py (0.6).

_EMPTY = frozenset(TABLE["empty_blocks"].split())


def check_effect(job: MegatronBridgeJob, name: str, value: Value) -> Iterator[Finding]:
    """Yield an override with which the run would not be the one that is planned."""
    path = ("overrides", name)
    setting = OF_BRIDGE.get(name) or OF_BRIDGE.get(f"{name}={_said(value)}")
    refused = _refused(job, name, value) or ALWAYS.get(setting or "")
    block = name.partition(".")[0]
    if block in _EMPTY:
        found = f"no recipe of pretraining has {block}, and the program stops at it"
        remedy = "remove it"
        # An image of one's own may have recipes of its own.
        if block == "inprocess_restart":
            found += f"; {IDLE[block].reason}"
            remedy += ": gang_restarts starts all again"
        yield Finding(Code.OVERRIDE, path, found, remedy, level_in(job.image))
    elif refused is not None:
        yield Finding(Code.OVERRIDE, path, *refused)
    elif setting in TRIALS and value is not False:
        yield warning(Code.TRIAL_OPTION, path, *TRIALS[setting])
    elif name == "checkpoint.dist_ckpt_strictness" and value in PARTIAL:
        yield warning(Code.TRIAL_OPTION, path, *RANDOM)
    elif (name, value) == ("model.moe_token_dispatcher_type", "flex") and job.nodes > 1:
        yield warning(Code.OVERRIDE, path, *FLEX_BETWEEN_NODES)


def _refused(job: MegatronBridgeJob, name: str, value: Value) -> Conflict | None:
    if name == "dist.distributed_backend" and value != "nccl":
        return ALWAYS["distributed_backend"]
    if name in {"model.fp8", "mixed_precision.fp8"} and job.training.precision == "bf16":
        return ALWAYS["fp16"]._replace(reason="training.precision says bf16, and was checked")
    return None


# Memory, time and checkpoints are planned for the job's model, and the program compares four of its
# sizes with the recipe's before it trains. Names: Megatron core 0.19, `TransformerConfig`, and
# Megatron-Bridge 0.6, megatron/bridge/models/gpt_provider.py.

# What weights and the work on them are counted by, where Bridge's name is another.
_RENAMED = {"num_moe_experts": "num_experts", "gated_linear_unit": "swiglu"}
_SIZES = frozenset(TABLE["sizes_of_bridge"].split())
# Megatron-LM's name for what a job file says elsewhere, or in another name.
_ELSEWHERE = {"max_position_embeddings": "training.sequence_length says how long texts are"}
# What weights are trained with, though they have the same shapes without it.
_LEARNT_WITH = {
    "rotary_base": "rotary_base",
    "layernorm_epsilon": "norm_epsilon",
    "normalization": "normalization",
    "position_embedding_type": "position_embedding_type",
}


def check_model_override(job: MegatronBridgeJob, name: str, value: object) -> Iterator[Finding]:
    """Yield a size that is not the job's, and what base weights were not trained with."""
    block, _, field = name.partition(".")
    if block != "model" or has_errors(check_model(job.model)):
        return
    path: Path = ("overrides", name)
    preset = job.model.preset if isinstance(job.model, ModelSpec) else job.model
    if field in NOT_OF_LLAMA and (preset or "").startswith("llama-") and _is_llama(job.recipe):
        found = f"the model of {job.recipe} has no {field}: another model's has it"
        yield Finding(Code.OVERRIDE, path, found, _instead(field), level_in(job.image))
        return
    shape = model_shape(job.model)
    if field in _SIZES and (planned := _planned(shape, field)) != value:
        if field == "vocab_size" and isinstance(value, int) and value > shape.vocab_size:
            return  # rows that no token asks for, as padding has them
        found = f"{_said(value)} would win over the job's model, which has {_said(planned)}"
        key = _RENAMED.get(field, field)
        if field == "share_embeddings_and_output_weights":
            key = "untie_embeddings_and_output_weights"
        yield Finding(Code.OVERRIDE, path, found, f"remove it, or set model.{key} as well")
    base = PRESETS.get(preset or "")
    if field in _LEARNT_WITH and base is not None and job.checkpoint.pretrained is not None:
        theirs = getattr(base, _LEARNT_WITH[field])
        # A larger base is how models learn longer sequences.
        larger = field == "rotary_base" and isinstance(value, int | float) and value > theirs
        if value != theirs and not larger:
            found = f"{_said(value)}, and weights of {preset} were trained with {theirs}"
            yield warning(Code.MODEL_VALUE, path, found, "remove it")


def _is_llama(recipe: str) -> bool:
    """Tell whether LlamaBridge makes a recipe's model, by its name: llama32_1b, not llama4."""
    return recipe.startswith(("llama2_", "llama3_", "llama31_", "llama32_"))


def _instead(field: str) -> str:
    blocks = [f"{block}.{field}" for block, fields in FIELDS.items() if field in fields]
    others = [each for each in blocks if not each.startswith("model.")]
    if others:
        return f"write {' or '.join(others)}"
    return f"remove it{f': {_ELSEWHERE[field]}' if field in _ELSEWHERE else ''}"


def _planned(shape: ModelShape, field: str) -> object:
    """Return what the job's model has for a name of Bridge's."""
    if field == "share_embeddings_and_output_weights":
        return not shape.untie_embeddings_and_output_weights
    value = getattr(shape, _RENAMED.get(field, field))
    # Megatron takes the width of all layers for that of an expert.
    return shape.expert_width if field == "moe_ffn_hidden_size" and shape.num_experts else value


def _said(value: object) -> str:
    """Write a value as YAML does."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
