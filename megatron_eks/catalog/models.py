"""Model architectures in Megatron's own names, and the presets users name in job files."""

import re
from dataclasses import dataclass, replace
from typing import Literal


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

    def expert_layers(self, start: int, stop: int) -> int:
        """Count the layers with experts among some layers."""
        if self.num_experts is None:
            return 0
        often = self.moe_layer_freq
        if isinstance(often, int):
            return sum(layer % often == 0 for layer in range(start, stop))
        return sum(often[start:stop])


# Hugging Face `config.json` of meta-llama/Llama-3.1-8B; its sisters below differ where they say so.
LLAMA_3_1_8B = ModelShape(
    num_layers=32,
    hidden_size=4096,
    ffn_hidden_size=14336,
    num_attention_heads=32,
    num_query_groups=8,
    kv_channels=128,
    vocab_size=128256,
    max_position_embeddings=131072,
    rotary_base=500000,
    rope_scaling=RopeScaling(factor=8.0),
)
LLAMA_2_7B = ModelShape(
    num_layers=32,
    hidden_size=4096,
    ffn_hidden_size=11008,
    num_attention_heads=32,
    num_query_groups=32,
    kv_channels=128,
    vocab_size=32000,
    max_position_embeddings=4096,
)
# Hugging Face `config.json` of meta-llama/Llama-3.2-1B; the 3B differs where it says so below.
LLAMA_3_2_1B = replace(
    LLAMA_3_1_8B,
    num_layers=16,
    hidden_size=2048,
    ffn_hidden_size=8192,
    kv_channels=64,
    untie_embeddings_and_output_weights=False,
    rope_scaling=RopeScaling(factor=32.0),
)
# The workshop guide's arguments as Megatron reads them: a GPT-3, not a Llama.
GPT_7B = ModelShape(
    num_layers=32,
    hidden_size=4096,
    ffn_hidden_size=16384,
    num_attention_heads=32,
    num_query_groups=32,
    kv_channels=128,
    vocab_size=128256,
    max_position_embeddings=4096,
    normalization="LayerNorm",
    swiglu=False,
    add_bias_linear=True,
    untie_embeddings_and_output_weights=False,
    position_embedding_type="learned_absolute",
    attention_dropout=0.1,
    hidden_dropout=0.1,
)

PRESETS: dict[str, ModelShape] = {
    "gpt-7b": GPT_7B,
    "llama-2-7b": LLAMA_2_7B,
    # meta-llama/Llama-2-13b-hf and Llama-2-70b-hf
    "llama-2-13b": replace(
        LLAMA_2_7B,
        num_layers=40,
        hidden_size=5120,
        ffn_hidden_size=13824,
        num_attention_heads=40,
        num_query_groups=40,
    ),
    "llama-2-70b": replace(
        LLAMA_2_7B,
        num_layers=80,
        hidden_size=8192,
        ffn_hidden_size=28672,
        num_attention_heads=64,
        num_query_groups=8,
    ),
    "llama-3.1-8b": LLAMA_3_1_8B,
    "llama-3.1-70b": replace(
        LLAMA_3_1_8B,
        num_layers=80,
        hidden_size=8192,
        ffn_hidden_size=28672,
        num_attention_heads=64,
    ),
    "llama-3.1-405b": replace(
        LLAMA_3_1_8B,
        num_layers=126,
        hidden_size=16384,
        ffn_hidden_size=53248,
        num_attention_heads=128,
    ),
    "llama-3.2-1b": LLAMA_3_2_1B,
    "llama-3.2-3b": replace(
        LLAMA_3_2_1B,
        num_layers=28,
        hidden_size=3072,
        num_attention_heads=24,
        kv_channels=128,
    ),
    # mistralai/Mistral-7B-v0.3; mistralai/Mathstral-7B-v0.1 has the same shape.
    "mistral-7b": replace(
        LLAMA_3_1_8B,
        vocab_size=32768,
        max_position_embeddings=32768,
        rotary_base=1000000,
        rope_scaling=None,
    ),
    # mistralai/Mixtral-8x7B-v0.1
    "mixtral-8x7b": replace(
        LLAMA_3_1_8B,
        vocab_size=32000,
        max_position_embeddings=32768,
        rotary_base=1000000,
        rope_scaling=None,
        num_experts=8,
        moe_router_topk=2,
    ),
}

# `architectures` of their config.json; the workshop's GPT is nobody's.
ARCHITECTURE_OF: dict[str, str] = {
    **{name: "LlamaForCausalLM" for name in PRESETS if name.startswith("llama-")},
    "mistral-7b": "MistralForCausalLM",
    "mixtral-8x7b": "MixtralForCausalLM",
}
"""Classes of transformers by preset."""


# Sources: `tokenizer.json` and `tokenizer_config.json` of the repositories on Hugging Face, added
# tokens counted; what is named without its version, and differs between versions, is not here.
_NAMES: tuple[tuple[str, int], ...] = (
    (r"llama-?2(?!\d|\.).*", 32000),
    (r"llama-tokenizer", 32000),
    (r"tinyllama.*", 32000),
    (r"llama-?3(?!\d).*", 128256),
    (r"mi[sx]tral-(7b|8x7b)(-instruct)?-v0\.[12]", 32000),
    (r"mixtral-8x7b.*", 32000),
    (r"mistral-7b(-instruct)?-v0\.3", 32768),
    (r"mathstral-7b.*", 32768),
    (r"qwen2\.5-.*", 151665),
    (r"qwen3-\d.*", 151669),
    (r"gpt2(-\w+)?", 50257),
    (r"(gpt-neox-20b|pythia-.*)", 50277),
    (r"gemma-(2-)?\d+b.*", 256000),
)


def tokens(name: str) -> int | None:
    """Return the number of tokens; None for names that nobody has looked up."""
    plain = name.rstrip("/").rpartition("/")[2].lower()
    plain = plain.replace("_", "-").removeprefix("meta-").removesuffix("-hf")
    return next((count for form, count in _NAMES if re.fullmatch(form, plain)), None)
