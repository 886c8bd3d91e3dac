"""The matrices of a layer on one tensor parallel rank, and the operations that they ask for."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from megatron_eks.catalog.models import ModelShape


@dataclass(frozen=True)
class Matrix:
    """One linear map."""

    inner: float
    columns: float


def attention(model: ModelShape, tensor: int) -> tuple[Matrix, ...]:
    """Return the projections around attention; fewer query groups than ranks are replicated.

    With latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1; Megatron-LM's
    `multi_latent_attention.py`) every rank holds the maps that compress.
    """
    hidden, heads = model.hidden_size, model.num_attention_heads / tensor
    if not model.multi_latent_attention:
        query = heads * model.kv_channels
        groups = max(model.num_query_groups, tensor) / tensor
        key_value = 2 * groups * model.kv_channels
        return Matrix(hidden, query + key_value), Matrix(query, hidden)
    query, latent = heads * model.key_size, model.kv_lora_rank
    given: tuple[Matrix, ...] = (Matrix(hidden, query),)
    if model.q_lora_rank:
        given = (Matrix(hidden, model.q_lora_rank), Matrix(model.q_lora_rank, query))
    return (
        *given,
        Matrix(hidden, latent + model.qk_pos_emb_head_dim),
        Matrix(latent, heads * (model.qk_head_dim + model.v_head_dim)),
        Matrix(heads * model.v_head_dim, hidden),
    )


def feed_forward(
    model: ModelShape, width: int, tensor: int, hidden: int | None = None
) -> tuple[Matrix, ...]:
    """Return a feed-forward block of so many inner units; SwiGLU has a gate beside them."""
    gates = 2 if model.swiglu else 1
    inner, hidden = width / tensor, hidden or model.hidden_size
    return Matrix(hidden, gates * inner), Matrix(inner, hidden)


def expert(model: ModelShape, tensor: int) -> tuple[Matrix, ...]:
    """Return one expert's maps."""
    return feed_forward(model, model.expert_width, tensor, model.expert_hidden)


def latent(model: ModelShape) -> tuple[Matrix, ...]:
    """Return the maps around experts that see less of a token, whole on every rank."""
    if model.moe_latent_size is None:
        return ()
    hidden, seen = model.hidden_size, model.moe_latent_size
    return Matrix(hidden, seen), Matrix(seen, hidden)


def mamba(model: ModelShape, tensor: int) -> tuple[Matrix, ...]:
    """Return the projections around a Mamba-2 scan (arXiv 2405.21060, section 7.1).

    The first gives gate and input of each channel, the states' two maps of each group, and a step
    of each head (Megatron-LM's `mamba_mixer.py`).
    """
    inner = model.mamba_inner
    given = 2 * inner + 2 * model.mamba_num_groups * model.mamba_state_dim + model.mamba_num_heads
    return Matrix(model.hidden_size, given / tensor), Matrix(inner / tensor, model.hidden_size)


def size(matrices: Iterable[Matrix]) -> float:
    """Count their entries."""
    return sum(matrix.inner * matrix.columns for matrix in matrices)


# Operations are what published TFLOP/s and MFU count: Narayanan et al. 2021 (arXiv 2104.04473,
# appendix) with what Megatron-LM counts today (`num_floating_point_operations`): causal attention
# has half of the pairs, the input embedding is a look-up, what is computed again does not count.
FORWARD_AND_BACKWARD = 3  # a backward pass is two matrix products for each of the forward pass


def layers_flops_per_token(model: ModelShape) -> float:
    """Return the forward operations of all layers' matrices for a token."""
    routed = model.hidden_size * (model.num_experts or 0) + size(latent(model))
    routed += size(expert(model, 1)) * (model.moe_router_topk or 1)
    routed += size(feed_forward(model, model.moe_shared_expert_intermediate_size or 0, 1))
    entries = {
        "*": size(attention(model, 1)),
        "-": size(feed_forward(model, model.ffn_hidden_size, 1)),
        "E": routed,
        "M": size(mamba(model, 1)),
    }
    parts = model.parts(model.num_layers, model.expert_layers(0, model.num_layers))
    return 2 * sum(count * entries[part] for part, count in parts.items())


# A state is decayed, added to and read, of each channel: what Megatron-LM counts of a scan.
_SCAN = 7


def scan_flops_per_token(model: ModelShape) -> float:
    """Return the forward operations of one Mamba layer's scan for a token."""
    return _SCAN * model.mamba_inner * model.mamba_state_dim


def attention_flops_per_token(model: ModelShape, sequence_length: int) -> float:
    """Return the forward operations of one layer's causal attention for a token."""
    seen = model.seen(sequence_length)
    return model.num_attention_heads * (model.key_size + model.value_size) * seen


def output_flops_per_token(model: ModelShape) -> float:
    """Return the forward operations of the output layer for a token."""
    return 2 * model.hidden_size * model.vocab_size


def adapter(matrices: Iterable[Matrix], rank: int) -> float:
    """Count the entries of LoRA's two narrow maps beside each (Hu et al., arXiv 2106.09685)."""
    return sum(rank * (matrix.inner + matrix.columns) for matrix in matrices)


@cache
def model_flops_per_token(
    model: ModelShape, sequence_length: int, *, frozen: bool = False
) -> float:
    """Return all operations of a training step for a token.

    Frozen matrices have no gradient of their own: two products instead of three.
    """
    layers = layers_flops_per_token(model)
    parts = model.parts(model.num_layers, 0)
    pairs = parts["*"] * attention_flops_per_token(model, sequence_length)
    pairs += parts["M"] * scan_flops_per_token(model)
    # Multi-token prediction: a layer, a map of two inputs to one, and the output layer again.
    ahead, each = model.mtp_num_layers, model.ahead_layers / model.num_layers
    layers += each * layers + ahead * 4 * model.hidden_size**2
    layers += (1 + ahead) * output_flops_per_token(model)
    pairs += each * pairs
    return (FORWARD_AND_BACKWARD - frozen) * layers + FORWARD_AND_BACKWARD * pairs
