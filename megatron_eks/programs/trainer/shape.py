"""The `model` block of a configuration, resolved to one architecture and counted."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from findings import Finding, usage_error
from model_presets import PRESETS
from trainer_values import boolean, choice, fraction, natural, optional, positive, positive_number


@dataclass(frozen=True)
class Shape:
    """A decoder-only transformer; names and meanings are Megatron-LM's arguments."""

    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    kv_channels: int
    vocab_size: int
    max_position_embeddings: int
    normalization: Literal["RMSNorm", "LayerNorm"] = "RMSNorm"
    norm_epsilon: float = 1e-5
    swiglu: bool = True
    add_bias_linear: bool = False
    untie_embeddings_and_output_weights: bool = True
    position_embedding_type: Literal["rope", "learned_absolute"] = "rope"
    rotary_base: int = 10000
    rope_scaling_factor: float | None = None
    """Llama 3.1's frequency scaling; None is none."""
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    init_method_std: float = 0.02

    @property
    def matrix_parameters(self) -> int:
        """Parameters that every token is multiplied with: layers and output, without embedding."""
        heads = self.num_attention_heads + self.num_query_groups
        attention = 2 * self.hidden_size * heads * self.kv_channels
        mlp = (3 if self.swiglu else 2) * self.hidden_size * self.ffn_hidden_size
        return self.num_layers * (attention + mlp) + self.vocab_size * self.hidden_size

    def flops_per_token(self, sequence_length: int) -> float:
        """Floating-point operations of training on one token, without recomputation.

        6 a parameter, and the attention matrix counted in full as torchtitan and the PaLM paper
        (arXiv 2204.02311, appendix B) do, so that figures compare.
        """
        attention = 12 * self.num_layers * self.num_attention_heads * self.kv_channels
        return 6.0 * self.matrix_parameters + attention * sequence_length


_CHECKS: dict[str, Callable[[object], object]] = {
    "num_layers": positive,
    "hidden_size": positive,
    "ffn_hidden_size": positive,
    "num_attention_heads": positive,
    "num_query_groups": positive,
    "kv_channels": positive,
    "vocab_size": positive,
    "max_position_embeddings": positive,
    "normalization": choice("RMSNorm", "LayerNorm"),
    "norm_epsilon": positive_number,
    "swiglu": boolean,
    "add_bias_linear": boolean,
    "untie_embeddings_and_output_weights": boolean,
    "position_embedding_type": choice("rope", "learned_absolute"),
    "rotary_base": positive,
    "attention_dropout": fraction,
    "hidden_dropout": fraction,
    "init_method_std": positive_number,
}
_OTHERS: dict[str, Callable[[object], object]] = {
    "preset": optional(choice(*sorted(PRESETS))),
    "init": optional(choice("config", "pretrained")),
    "num_experts": natural,
    "moe_router_topk": natural,
}


@dataclass(frozen=True)
class Model:
    """An architecture, and where its first weights come from."""

    shape: Shape
    pretrained: bool


def read_model(
    model: str | Mapping[str, Any], *, base_weights: bool, findings: list[Finding]
) -> Model | None:
    """Resolve a preset's name, a preset with changes, or a whole mapping; None on findings.

    `base_weights` says whether the configuration names some; without `init` that decides.
    """
    if isinstance(model, str):
        model = {"preset": model}
    values = _values(model, findings)
    if values.get("num_experts"):
        found = "mixtures of experts are not supported by this program"
        findings.append(usage_error("model.num_experts", found, "use kind: megatron"))
    init = values.get("init")
    if base_weights != (init == "pretrained") and init is not None:
        found = f"init: {init}, and checkpoint.pretrained is {'' if base_weights else 'not '}there"
        remedy = "remove checkpoint.pretrained" if base_weights else "add checkpoint.pretrained"
        findings.append(usage_error("model.init", found, remedy))
    if findings:
        return None
    complete = _complete(values, findings)
    if complete is None:
        return None
    shape = Shape(**complete)
    findings.extend(_together(shape))
    return None if findings else Model(shape, base_weights)


def _values(model: Mapping[str, Any], findings: list[Finding]) -> dict[str, Any]:
    checks = _CHECKS | _OTHERS
    values = {}
    for key, value in model.items():
        if key not in checks:
            near = difflib.get_close_matches(str(key), checks, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(checks))}"
            findings.append(usage_error(f"model.{key}", "unknown key", remedy))
            continue
        try:
            values[key] = None if value is None else checks[key](value)
        except ValueError as problem:
            findings.append(usage_error(f"model.{key}", repr(value)[:80], str(problem)))
    return {key: value for key, value in values.items() if value is not None}


def _complete(values: dict[str, Any], findings: list[Finding]) -> dict[str, Any] | None:
    """Lay what is given over the preset, and see that nothing is missing."""
    scaling: Any = None
    found: dict[str, Any] = {}
    if "preset" in values:
        found = dict(PRESETS[values["preset"]])
        scaling = found.pop("rope_scaling", None)
    found |= {key: value for key, value in values.items() if key in _CHECKS}
    required = [field.name for field in fields(Shape) if field.default is MISSING]
    missing = [name for name in required if name not in found]
    if missing:
        words = f"without preset, {', '.join(missing)} are missing"
        findings.append(usage_error("model", words, "add them, or name a preset"))
        return None
    return found | ({"rope_scaling_factor": scaling["factor"]} if scaling else {})


def _together(shape: Shape) -> list[Finding]:
    found = []
    if shape.num_attention_heads % shape.num_query_groups:
        words = f"{shape.num_query_groups} does not divide {shape.num_attention_heads} heads"
        found.append(usage_error("model.num_query_groups", words, "use a divisor"))
    if shape.position_embedding_type == "rope" and shape.kv_channels % 2:
        words = f"{shape.kv_channels} is odd, and rotary embeddings turn pairs"
        found.append(usage_error("model.kv_channels", words, "use an even number"))
    return found
