"""The decoder that is trained: Llama, Mistral and GPT shapes, named as Hugging Face names Llama's.

Weights of `LlamaForCausalLM` and `MistralForCausalLM` fit as they are. Only what is compiled well
is used: one function a layer, fused attention, and a loss that never holds all logits.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from megatron_eks.catalog.models import ModelShape
from megatron_eks.programs.trainer.loss import linear_cross_entropy

# The length Llama 3 was trained at, and the two bounds of its scaling ("The Llama 3 Herd of
# Models"; rope_scaling in the config.json of meta-llama/Llama-3.1-8B).
_ORIGINAL_POSITIONS = 8192
_LOW_FREQUENCY = 1.0
_HIGH_FREQUENCY = 4.0


def inverse_frequencies(shape: ModelShape) -> Tensor:
    """Return the rotary frequencies in fp32, on the CPU."""
    exponents = torch.arange(0, shape.kv_channels, 2, device="cpu").float() / shape.kv_channels
    frequencies = 1.0 / (float(shape.rotary_base) ** exponents)
    if shape.rope_scaling is None:
        return frequencies
    turns = _ORIGINAL_POSITIONS * frequencies / (2 * math.pi)
    smooth = ((turns - _LOW_FREQUENCY) / (_HIGH_FREQUENCY - _LOW_FREQUENCY)).clamp(0, 1)
    return smooth * frequencies + (1 - smooth) * frequencies / shape.rope_scaling.factor


def rotary_table(shape: ModelShape, length: int, device: torch.device) -> Tensor:
    """Return cosines and sines, (2, length, channels) in fp32."""
    angles = torch.outer(torch.arange(length, device="cpu").float(), inverse_frequencies(shape))
    angles = torch.cat((angles, angles), dim=-1)
    return torch.stack((angles.cos(), angles.sin())).to(device)


def rotate(states: Tensor, table: Tensor) -> Tensor:
    """Turn (batch, heads, length, channels) by the table, halves against each other."""
    cosines, sines = table[0], table[1]
    low, high = states.float().chunk(2, dim=-1)
    turned = torch.cat((-high, low), dim=-1)
    return (states.float() * cosines + turned * sines).to(states.dtype)


def _norm(shape: ModelShape) -> nn.Module:
    kind = nn.RMSNorm if shape.normalization == "RMSNorm" else nn.LayerNorm
    return kind(shape.hidden_size, eps=shape.norm_epsilon)


class Attention(nn.Module):
    """Causal attention with grouped queries."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.channels = shape.kv_channels
        self.dropout = shape.attention_dropout
        self.grouped = shape.num_query_groups != shape.num_attention_heads
        bias = shape.add_bias_linear
        queries = shape.num_attention_heads * shape.kv_channels
        keys = shape.num_query_groups * shape.kv_channels
        self.q_proj = nn.Linear(shape.hidden_size, queries, bias=bias)
        self.k_proj = nn.Linear(shape.hidden_size, keys, bias=bias)
        self.v_proj = nn.Linear(shape.hidden_size, keys, bias=bias)
        self.o_proj = nn.Linear(queries, shape.hidden_size, bias=bias)

    def forward(self, states: Tensor, table: Tensor | None) -> Tensor:
        """Attend; without a table positions are in the states already."""
        batch, length, _ = states.shape
        parts = (
            projection(states).view(batch, length, -1, self.channels).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key, value = parts
        if table is not None:
            query, key = rotate(query, table), rotate(key, table)
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
            enable_gqa=self.grouped,
        )
        return self.o_proj(attended.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    """SwiGLU, or GELU where the shape says so."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        bias = shape.add_bias_linear
        self.gate_proj = (
            nn.Linear(shape.hidden_size, shape.ffn_hidden_size, bias=bias) if shape.swiglu else None
        )
        self.up_proj = nn.Linear(shape.hidden_size, shape.ffn_hidden_size, bias=bias)
        self.down_proj = nn.Linear(shape.ffn_hidden_size, shape.hidden_size, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        """Widen, bend, narrow."""
        if self.gate_proj is None:
            return self.down_proj(functional.gelu(self.up_proj(states)))
        return self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))


class Layer(nn.Module):
    """One transformer layer; what is sharded, compiled and recomputed as a unit."""

    def __init__(self, shape: ModelShape, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.dropout = shape.hidden_dropout
        self.input_layernorm = _norm(shape)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = _norm(shape)
        self.mlp = Mlp(shape)

    def forward(self, states: Tensor, table: Tensor | None) -> Tensor:
        """Apply the layer, keeping only its input for the backward pass if told to."""
        if self.recompute and self.training:
            # Nothing is drawn at random without dropout, and saving the generator's state costs.
            kept = self.dropout > 0 or self.self_attn.dropout > 0
            return checkpoint(
                self.apply_parts, states, table, use_reentrant=False, preserve_rng_state=kept
            )
        return self.apply_parts(states, table)

    def compile_parts(self) -> None:
        """Compile what is inside of the hooks of FSDP, which gather and free the weights."""
        compiled = torch.compile(self.apply_parts, fullgraph=True, dynamic=False)
        self.__dict__["apply_parts"] = compiled

    def apply_parts(self, states: Tensor, table: Tensor | None) -> Tensor:
        """Add attention and MLP to the states."""
        states = states + self._drop(self.self_attn(self.input_layernorm(states), table))
        return states + self._drop(self.mlp(self.post_attention_layernorm(states)))

    def _drop(self, states: Tensor) -> Tensor:
        return functional.dropout(states, self.dropout, training=self.training)


class Head(nn.Linear):
    """The output layer with the loss, so that FSDP sees one call."""

    def forward(self, states: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss over all labels."""
        return linear_cross_entropy(states, self.weight, labels)


class Body(nn.Module):
    """Embedding, layers and the last norm."""

    def __init__(self, shape: ModelShape, *, recompute: bool) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.embed_positions = (
            None
            if shape.position_embedding_type == "rope"
            else nn.Embedding(shape.max_position_embeddings, shape.hidden_size)
        )
        self.layers = nn.ModuleList(
            Layer(shape, recompute=recompute) for _ in range(shape.num_layers)
        )
        self.norm = _norm(shape)
        self.table: Tensor | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the states after the last norm."""
        states = self.embed_tokens(tokens)
        length = tokens.shape[1]
        table = None
        if self.embed_positions is not None:
            states = states + self.embed_positions(torch.arange(length, device=tokens.device))
            states = functional.dropout(states, self.shape.hidden_dropout, training=self.training)
        else:
            # Kept after the first use: a plain attribute, because a checkpoint has no use for it.
            if self.table is None or self.table.shape[1] < length:
                self.table = rotary_table(self.shape, length, tokens.device)
            table = self.table[:, :length]
        for layer in self.layers:
            states = layer(states, table)
        return self.norm(states)


class Decoder(nn.Module):
    """The whole model; its state dictionary has Hugging Face's names."""

    def __init__(self, shape: ModelShape, *, recompute: bool = False) -> None:
        super().__init__()
        self.model = Body(shape, recompute=recompute)
        tied = not shape.untie_embeddings_and_output_weights
        self.lm_head = None if tied else Head(shape.hidden_size, shape.vocab_size, bias=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss over all labels."""
        states = self.model(tokens)
        if self.lm_head is not None:
            return self.lm_head(states, labels)
        return linear_cross_entropy(states, self.model.embed_tokens.weight, labels)
