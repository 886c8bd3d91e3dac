"""The `model` block of job files: a preset, or an architecture in Megatron's names."""

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from megatron_eks.config.forms import Model

# Far above any real run, and below what the API and the programs keep in 32 bits.
_MOST = 1_000_000_000

Positive = Annotated[int, Field(ge=1, le=_MOST)]
Natural = Annotated[int, Field(ge=0, le=_MOST)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class ModelSpec(Model):
    """A preset with changes, or a whole architecture in Megatron's names."""

    preset: str | None = None
    init: Literal["config", "pretrained"] | None = None
    num_layers: Positive | None = None
    hidden_size: Positive | None = None
    ffn_hidden_size: Positive | None = None
    num_attention_heads: Positive | None = None
    num_query_groups: Positive | None = None
    kv_channels: Positive | None = None
    vocab_size: Positive | None = None
    max_position_embeddings: Positive | None = None
    normalization: Literal["RMSNorm", "LayerNorm"] | None = None
    norm_epsilon: float | None = Field(default=None, gt=0)
    swiglu: bool | None = None
    add_bias_linear: bool | None = None
    untie_embeddings_and_output_weights: bool | None = None
    position_embedding_type: Literal["rope", "learned_absolute"] | None = None
    rotary_base: Positive | None = None
    attention_dropout: Fraction | None = None
    hidden_dropout: Fraction | None = None
    init_method_std: float | None = Field(default=None, gt=0)
    num_experts: Positive | None = None
    moe_router_topk: Positive | None = None
    moe_ffn_hidden_size: Positive | None = None
    """Width of one expert, by default `ffn_hidden_size`."""
    moe_shared_expert_intermediate_size: Positive | None = None
    """Width of all experts together that every token goes to."""
    moe_layer_freq: Positive | tuple[Literal[0, 1], ...] | None = None
    """Every so many layers has experts; or for each layer 1 if it has, 0 if not."""
    multi_latent_attention: bool | None = None
    """Queries, keys and values are compressed, as in DeepSeek's models."""
    q_lora_rank: Positive | None = None
    kv_lora_rank: Positive | None = None
    qk_head_dim: Positive | None = None
    qk_pos_emb_head_dim: Positive | None = None
    v_head_dim: Positive | None = None
    mtp_num_layers: Positive | None = None
    """Layers of multi-token prediction, each with its own loss."""
    window_size: Positive | None = None
    """How many earlier tokens attention sees, by default all."""
    window_attn_skip_freq: Positive | None = None
    """With `window_size`, every Nth layer sees all tokens."""
    hybrid_layer_pattern: Annotated[str, Field(pattern=r"^[M*E-]+$")] | None = None
    """Layers of one part each: Mamba (M), attention (*), feed-forward (-), experts (E)."""
    mamba_num_heads: Positive | None = None
    mamba_head_dim: Positive | None = None
    mamba_state_dim: Positive | None = None
    mamba_num_groups: Positive | None = None
    moe_latent_size: Positive | None = None
    """What experts see of a token, by default all of it."""

    @model_validator(mode="after")
    def _derive(self) -> Self:
        """Fill in what Megatron derives (`validate_args`, core_v0.19); a written value wins."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        if self.preset or self.multi_latent_attention or not hidden or not heads or hidden % heads:
            return self
        # Three matrices instead of two, and as many parameters: a multiple of 64.
        ffn = hidden * 8 // 3 // 64 * 64 if self.swiglu else 4 * hidden
        sizes = {"ffn_hidden_size": ffn, "num_query_groups": heads, "kv_channels": hidden // heads}
        missing = {name: size for name, size in sizes.items() if getattr(self, name) is None}
        return self.model_copy(update=missing) if missing else self


# Decided by type, so that a mistake inside a mapping is not also reported as "not a text". The
# tags cannot be keys of a file, so that locations of errors can be told from them.
AnyModel = Annotated[
    Annotated[ModelSpec, Tag("<mapping>")] | Annotated[str, Tag("<preset>")],
    Discriminator(
        lambda value: "<mapping>" if isinstance(value, (dict, ModelSpec)) else "<preset>"
    ),
]
