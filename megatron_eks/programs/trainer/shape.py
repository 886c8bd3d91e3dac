"""The `model` block of a configuration, resolved to one architecture and counted."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.programs.program import Finding, usage_error
from megatron_eks.programs.trainer.values import (
    Check,
    checks_of,
    choice,
    fraction,
    optional,
    read,
    whole,
)

_DROPOUTS = ("attention_dropout", "hidden_dropout")
_NAMES = (
    *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups"),
    *("kv_channels", "vocab_size", "max_position_embeddings", "normalization", "norm_epsilon"),
    *("swiglu", "add_bias_linear", "untie_embeddings_and_output_weights"),
    *("position_embedding_type", "rotary_base", "init_method_std", *_DROPOUTS),
)
_OF_SHAPES: dict[str, Check] = checks_of(ModelShape) | dict.fromkeys(_DROPOUTS, fraction)
_CHECKS = {name: optional(_OF_SHAPES[name]) for name in _NAMES} | {
    "preset": optional(choice(*sorted(PRESETS))),
    "init": optional(choice("config", "pretrained")),
    "num_experts": optional(whole(0)),
    "moe_router_topk": optional(whole(0)),
}


@dataclass(frozen=True)
class Model:
    """An architecture, and where its first weights come from."""

    shape: ModelShape
    pretrained: bool


def matrix_parameters(shape: ModelShape) -> int:
    """Count what every token is multiplied with: layers and output, without the embedding."""
    heads = shape.num_attention_heads + shape.num_query_groups
    attention = 2 * shape.hidden_size * heads * shape.kv_channels
    mlp = (3 if shape.swiglu else 2) * shape.hidden_size * shape.ffn_hidden_size
    return shape.num_layers * (attention + mlp) + shape.vocab_size * shape.hidden_size


def flops_per_token(shape: ModelShape, sequence_length: int) -> float:
    """Return the floating-point operations of training on one token, without recomputation.

    6 a parameter, and the attention matrix counted in full as torchtitan and the PaLM paper
    (arXiv 2204.02311, appendix B) do, so that figures compare.
    """
    attention = 12 * shape.num_layers * shape.num_attention_heads * shape.kv_channels
    return 6.0 * matrix_parameters(shape) + attention * sequence_length


def read_model(
    model: str | Mapping[str, Any], *, base_weights: bool, findings: list[Finding]
) -> Model | None:
    """Resolve a preset's name, a preset with changes, or a whole mapping; None on findings.

    `base_weights` says whether the configuration names some; without `init` that decides.
    """
    if isinstance(model, str):
        model = {"preset": model}
    read_all = read(model, _CHECKS, "model.", findings)
    values = {key: value for key, value in read_all.items() if value is not None}
    preset = PRESETS.get(values.get("preset", ""))
    if values.get("num_experts", preset and preset.num_experts):
        found = "mixtures of experts are not supported by this program"
        findings.append(usage_error("model.num_experts", found, "use kind: megatron"))
    init = values.get("init")
    if base_weights != (init == "pretrained") and init is not None:
        found = f"init: {init}, and checkpoint.pretrained is {'' if base_weights else 'not '}there"
        remedy = "remove checkpoint.pretrained" if base_weights else "add checkpoint.pretrained"
        findings.append(usage_error("model.init", found, remedy))
    if findings:
        return None
    shape = _complete(preset, values, findings)
    if shape is None:
        return None
    findings.extend(_together(shape))
    return None if findings else Model(shape, base_weights)


def _complete(
    preset: ModelShape | None, values: dict[str, Any], findings: list[Finding]
) -> ModelShape | None:
    """Lay what is given over the preset, and see that nothing is missing."""
    found = {key: value for key, value in values.items() if key in _NAMES}
    if preset is not None:
        return replace(preset, **found)
    required = [field.name for field in fields(ModelShape) if field.default is MISSING]
    missing = [name for name in required if name not in found]
    if missing:
        words = f"without preset, {', '.join(missing)} are missing"
        findings.append(usage_error("model", words, "add them, or name a preset"))
        return None
    return ModelShape(**found)


def _together(shape: ModelShape) -> list[Finding]:
    found = []
    if shape.num_attention_heads % shape.num_query_groups:
        words = f"{shape.num_query_groups} does not divide {shape.num_attention_heads} heads"
        found.append(usage_error("model.num_query_groups", words, "use a divisor"))
    if shape.position_embedding_type == "rope" and shape.kv_channels % 2:
        words = f"{shape.kv_channels} is odd, and rotary embeddings turn pairs"
        found.append(usage_error("model.kv_channels", words, "use an even number"))
    return found
