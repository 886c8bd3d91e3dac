"""Seconds that a GPU computes on one microbatch of one layer, or of the output layer.

A matrix product takes the time of its operations and the time of its operands' way to memory
(Williams et al. 2009, "Roofline", doi 10.1145/1498765.1498785, here as a sum); everything between
the products is bound by memory, and moves what is kept for the backward pass a few times.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.predict.activations import layer_bytes_per_token
from megatron_eks.predict.flops import attention_flops_per_token
from megatron_eks.predict.parameters import padded_vocabulary

if TYPE_CHECKING:
    from megatron_eks.catalog.models import ModelShape
    from megatron_eks.predict.calibration import Calibration
    from megatron_eks.predict.hardware import Framework, Hardware
    from megatron_eks.predict.layout import Batch, Layout

_BF16 = 2
# Flash attention's backward pass computes the scores again: five products for two (arXiv
# 2307.08691, section 3.1).
_ATTENTION_BACKWARD = 2.5
_MATRIX_BACKWARD = 2
# Of what moves between products, a third in the forward pass.
_FORWARD_TRAFFIC = 0.1
# bf16 logits written and read, softmax in fp32 read and written twice, gradient written and read.
_LOGITS_TRAFFIC = 24


@dataclass(frozen=True)
class Work:
    """One microbatch's forward and backward pass."""

    forward_seconds: float
    backward_seconds: float
    attention_seconds: float = 0.0
    """Part of the forward pass."""


@dataclass(frozen=True)
class Worker:
    """One rank: its GPU, and its share of a run."""

    framework: "Framework"
    hardware: "Hardware"
    calibration: "Calibration"
    model: "ModelShape"
    layout: "Layout"
    batch: "Batch"

    def layer(self) -> Work:
        """Return the work of one layer."""
        tokens = self.batch.rank_tokens(self.layout)
        model, tensor = self.model, self.layout.tensor
        query = model.num_attention_heads * model.kv_channels
        key_value = 2 * max(model.num_query_groups, tensor) * model.kv_channels
        products = self._product(tokens, model.hidden_size, (query + key_value) / tensor)
        products += self._product(tokens, query / tensor, model.hidden_size)
        products += self._feed_forward(tokens)
        pairs = attention_flops_per_token(model, self.batch.sequence_length) / tensor
        rate = self.calibration.attention(self.framework, self.hardware.generation)
        attention = tokens * pairs / (rate * self.hardware.peak_flops(fp8=False))
        kept = tokens * layer_bytes_per_token(model, self.layout)
        between = self.calibration.traffic * kept / self.hardware.memory_bytes_per_second
        return Work(
            forward_seconds=products + attention + between * _FORWARD_TRAFFIC,
            backward_seconds=_MATRIX_BACKWARD * products
            + _ATTENTION_BACKWARD * attention
            + between * (1 - _FORWARD_TRAFFIC),
            attention_seconds=attention,
        )

    def output(self) -> Work:
        """Return the work of the output layer and its loss, always in bf16."""
        tokens = self.batch.rank_tokens(self.layout)
        vocabulary = padded_vocabulary(self.model.vocab_size, self.layout.tensor)
        entries = vocabulary / self.layout.tensor
        product = self._product(tokens, self.model.hidden_size, entries, quantized=False)
        loss = tokens * entries * _LOGITS_TRAFFIC / self.hardware.memory_bytes_per_second
        return Work(product + loss / 2, _MATRIX_BACKWARD * product + loss / 2)

    def _feed_forward(self, tokens: float) -> float:
        model = self.model
        wide = (2 if model.swiglu else 1) * model.ffn_hidden_size
        if model.num_experts is None:
            tensor, count = self.layout.tensor, 1.0
        else:
            tensor, count = self.layout.expert_tensor, model.num_experts / self.layout.expert
            routed = tokens * (model.moe_router_topk or 1) * tensor / self.layout.tensor
            tokens = routed / count
        up = self._product(tokens, model.hidden_size, wide / tensor)
        down = self._product(tokens, model.ffn_hidden_size / tensor, model.hidden_size)
        return count * (up + down)

    def _product(
        self, rows: float, inner: float, columns: float, *, quantized: bool | None = None
    ) -> float:
        """Return the time of a product of so many rows, inner dimension and columns."""
        fp8 = self.batch.fp8 if quantized is None else quantized
        share = self.calibration.matrix(self.framework, self.hardware.generation, fp8=fp8)
        compute = 2 * rows * inner * columns / (share * self.hardware.peak_flops(fp8=fp8))
        operands = _BF16 * (rows * inner + inner * columns + rows * columns)
        return compute + operands / self.hardware.memory_bytes_per_second
