"""The matrices of a layer on one tensor parallel rank: what it stores, and multiplies with."""

from collections.abc import Iterable
from dataclasses import dataclass

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


def feed_forward(model: ModelShape, width: int, tensor: int) -> tuple[Matrix, ...]:
    """Return a feed-forward block of so many inner units; SwiGLU has a gate beside them."""
    gates = 2 if model.swiglu else 1
    inner = width / tensor
    return Matrix(model.hidden_size, gates * inner), Matrix(inner, model.hidden_size)


def size(matrices: Iterable[Matrix]) -> float:
    """Count their entries."""
    return sum(matrix.inner * matrix.columns for matrix in matrices)
