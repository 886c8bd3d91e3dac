"""Model architectures in Megatron's own names, and the presets of models.txt."""

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from megatron_eks.catalog.tables import entries, sections


@dataclass(frozen=True)
class RopeScaling:
    """Llama 3.1's frequency scaling of rotary embeddings."""

    factor: float


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer; field names and meanings are Megatron-LM's arguments."""

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
    rope_scaling: RopeScaling | None = None
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    init_method_std: float = 0.02
    num_experts: int | None = None
    moe_router_topk: int | None = None
    moe_ffn_hidden_size: int | None = None
    """Width of one expert; None: `ffn_hidden_size`, as Megatron takes it."""
    moe_shared_expert_intermediate_size: int | None = None
    """Width of all experts together that every token goes to."""
    moe_layer_freq: int | tuple[int, ...] = 1
    """Every so many layers has experts; or for each layer 1 if it has, 0 if not."""
    multi_latent_attention: bool = False
    q_lora_rank: int | None = None
    """None: queries are not compressed."""
    kv_lora_rank: int = 512
    qk_head_dim: int = 128
    qk_pos_emb_head_dim: int = 64
    v_head_dim: int = 128
    mtp_num_layers: int = 0
    """Layers of multi-token prediction behind the last, each with a loss of its own."""
    window_size: int | None = None
    """Earlier tokens that attention sees; None: all of them."""
    window_attn_skip_freq: int | None = None
    """Every so many layers sees all tokens; None: none does."""
    hybrid_layer_pattern: str | None = None
    """Layers of one part each: Mamba-2 (M), attention (*), feed-forward (-) or experts (E)."""
    mamba_num_heads: int = 0
    mamba_head_dim: int = 64
    mamba_state_dim: int = 128
    mamba_num_groups: int = 8
    moe_latent_size: int | None = None
    """What experts see of a token, between two maps of their own; None: all of it."""

    @property
    def expert_width(self) -> int:
        """Inner units of one expert."""
        return self.moe_ffn_hidden_size or self.ffn_hidden_size

    @property
    def expert_hidden(self) -> int:
        """What an expert sees of a token."""
        return self.moe_latent_size or self.hidden_size

    @property
    def mamba_inner(self) -> int:
        """Channels of a Mamba layer's scan."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def ahead_layers(self) -> int:
        """Layers of multi-token prediction: of a hybrid, attention and experts apart."""
        return self.mtp_num_layers * (2 if self.hybrid_layer_pattern else 1)

    @property
    def key_size(self) -> int:
        """Of a query and a key of one head."""
        if self.multi_latent_attention:
            return self.qk_head_dim + self.qk_pos_emb_head_dim
        return self.kv_channels

    @property
    def value_size(self) -> int:
        """Of a value of one head, and of what attention makes of it."""
        return self.v_head_dim if self.multi_latent_attention else self.kv_channels

    def seen(self, sequence_length: int) -> float:
        """Return the tokens that attention sees from the last of a sequence, on layers' average."""
        if self.window_size is None or self.window_size >= sequence_length:
            return sequence_length
        every = self.window_attn_skip_freq
        whole = (self.num_layers // every) / self.num_layers if every else 0.0
        # Of a causal triangle the band below its edge; the average row of the triangle has half.
        band = 2 * self.window_size - self.window_size**2 / sequence_length
        return whole * sequence_length + (1 - whole) * band

    def expert_layers(self, start: int, stop: int) -> int:
        """Count the layers with experts among some layers."""
        if self.num_experts is None:
            return 0
        if self.hybrid_layer_pattern:
            return self.hybrid_layer_pattern[start:stop].count("E")
        often = self.moe_layer_freq
        if isinstance(often, int):
            # The multiples below the stop, without those below the start.
            return -(-stop // often) + -start // often
        return sum(often[start:stop])

    def parts(self, layers: float, mixed: float) -> dict[str, float]:
        """Return how many of some layers have each part, by the letters of a hybrid's pattern.

        `mixed` of them have experts. A transformer's all have attention; of a hybrid's layers the
        average is taken.
        """
        pattern = self.hybrid_layer_pattern
        if not pattern:
            return {"*": layers, "-": layers - mixed, "E": mixed, "M": 0}
        of = {part: layers * pattern.count(part) / len(pattern) for part in "*-M"}
        return {**of, "E": mixed}


def _value(word: str) -> object:
    """Read a number, true or false, or a word; a scaling of positions is named by its factor."""
    if word.startswith("x"):
        return RopeScaling(float(word[1:]))
    try:
        value: object = json.loads(word)
    except ValueError:
        return word
    return value


def _presets() -> dict[str, ModelShape]:
    found: dict[str, ModelShape] = {}
    for name, sizes in entries(_TABLE["presets"]):
        words = [word.partition("=") for word in sizes.split()]
        changes: dict[str, Any] = {key: _value(value) for key, equals, value in words if equals}
        like = [key for key, equals, _ in words if not equals]
        found[name] = replace(found[like[0]], **changes) if like else ModelShape(**changes)
    return found


_TABLE = sections("models.txt")
PRESETS = _presets()

ARCHITECTURE_OF = {
    name: architecture
    for architecture, names in entries(_TABLE["architectures"])
    for name in names.split()
}
"""Classes of transformers by preset."""

_COUNTS = [(form, int(count)) for count, form in entries(_TABLE["tokens"])]


def tokens(name: str) -> int | None:
    """Return the number of tokens; None for names that nobody has looked up."""
    plain = name.rstrip("/").rpartition("/")[2].lower()
    plain = plain.replace("_", "-").removeprefix("meta-").removesuffix("-hf")
    return next((count for form, count in _COUNTS if re.fullmatch(form, plain)), None)
