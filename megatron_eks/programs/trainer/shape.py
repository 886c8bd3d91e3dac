"""The `model` block of a configuration, resolved to one architecture and counted."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.programs.program import Finding, usage_error
from megatron_eks.programs.trainer.config import Fraction, Positive, mistakes

_KNOWN = {
    *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups"),
    *("kv_channels", "vocab_size", "max_position_embeddings", "normalization", "norm_epsilon"),
    *("swiglu", "add_bias_linear", "untie_embeddings_and_output_weights"),
    *("position_embedding_type", "rotary_base", "rope_scaling", "init_method_std"),
    *("attention_dropout", "hidden_dropout"),
}
"""What this program's model has; a shape in which more is set is another program's."""


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
class _Shape(ModelShape):
    """A shape as it stands in a file."""

    norm_epsilon: Positive = ModelShape.norm_epsilon
    init_method_std: Positive = ModelShape.init_method_std
    attention_dropout: Fraction = ModelShape.attention_dropout
    hidden_dropout: Fraction = ModelShape.hidden_dropout


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
    model: Mapping[str, Any], *, base_weights: bool, findings: list[Finding]
) -> ModelShape | None:
    """Lay what is given over the preset that is named, if one is; None on findings.

    `base_weights` says whether the configuration names some; `init` must not contradict it.
    """
    given = {key: value for key, value in model.items() if value is not None}
    preset, init = given.pop("preset", None), given.pop("init", None)
    if preset is not None and preset not in PRESETS:
        findings.append(usage_error("model.preset", repr(preset), f"use {', '.join(PRESETS)}"))
        return None
    right, other = ("pretrained", "remove") if base_weights else ("config", "add")
    if init not in {None, right}:
        found = f"{init!r}, and checkpoint.pretrained is {'' if base_weights else 'not '}there"
        remedy = f"use {right}, or {other} checkpoint.pretrained"
        findings.append(usage_error("model.init", found, remedy))
    try:
        shape = _Shape(**{**(vars(PRESETS[preset]) if preset else {}), **given})
    except ValidationError as problem:
        findings.extend(mistakes(problem, _KNOWN, "model."))
    else:
        findings.extend(_judge(shape))
    return None if findings else shape


def _judge(shape: ModelShape) -> Iterator[Finding]:
    for field in fields(shape):
        place, value = f"model.{field.name}", getattr(shape, field.name)
        if field.name not in _KNOWN:
            if value not in (field.default, 0, None):
                found = f"{value!r} is not supported by this program"
                yield usage_error(place, found, "use kind: megatron")
        elif isinstance(value, int) and not isinstance(value, bool) and value <= 0:
            yield usage_error(place, repr(value), "use a number above 0")
    if shape.num_attention_heads % max(1, shape.num_query_groups):
        words = f"{shape.num_query_groups} does not divide {shape.num_attention_heads} heads"
        yield usage_error("model.num_query_groups", words, "use a divisor")
    if shape.position_embedding_type == "rope" and shape.kv_channels % 2:
        words = f"{shape.kv_channels} is odd, and rotary embeddings turn pairs"
        yield usage_error("model.kv_channels", words, "use an even number")
