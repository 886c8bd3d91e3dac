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

    @property
    def expert_width(self) -> int:
        """Inner units of one expert."""
        return self.moe_ffn_hidden_size or self.ffn_hidden_size

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
        often = self.moe_layer_freq
        if isinstance(often, int):
            # The multiples below the stop, without those below the start.
            return -(-stop // often) + -start // often
        return sum(often[start:stop])


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
