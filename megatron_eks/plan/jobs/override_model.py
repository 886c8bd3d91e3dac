"""Overrides of a Megatron-Bridge job that would train another model than the one it names.

Memory, time and checkpoints are planned for the job's model, and the program compares four of its
sizes with the recipe's before it trains. Names: Megatron core 0.19, `TransformerConfig`, and
Megatron-Bridge 0.6, megatron/bridge/models/gpt_provider.py.
"""

from collections.abc import Iterator

from megatron_eks.catalog.bridge_fields import FIELDS, NOT_OF_LLAMA
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, has_errors, warning
from megatron_eks.config.job import MegatronBridgeJob
from megatron_eks.plan.jobs.layout import model_shape
from megatron_eks.plan.jobs.model_checks import check_model
from megatron_eks.plan.jobs.override_checks import level_in

# What weights and the work on them are counted by, where Bridge's name is another.
_RENAMED = {"num_moe_experts": "num_experts", "gated_linear_unit": "swiglu"}
_SIZES = frozenset(
    {
        *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "kv_channels"),
        *("num_query_groups", "num_moe_experts", "moe_router_topk", "moe_ffn_hidden_size"),
        *("moe_shared_expert_intermediate_size", "gated_linear_unit", "add_bias_linear"),
        *("multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "v_head_dim"),
        *("qk_pos_emb_head_dim", "share_embeddings_and_output_weights", "vocab_size"),
    }
)
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
