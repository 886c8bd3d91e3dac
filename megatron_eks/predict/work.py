"""Seconds that a GPU computes on one microbatch of a layer, and sends to other ranks.

A matrix product takes the time of its operations and the time of its operands' way to memory
(Williams et al. 2009, "Roofline", doi 10.1145/1498765.1498785, here as a sum); everything between
the products is bound by memory, and moves what is kept for the backward pass a few times.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.activations import layer_bytes_per_token
from megatron_eks.predict.calibration import Calibration
from megatron_eks.predict.hardware import Framework, Hardware
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.matrices import Matrix, attention, attention_flops_per_token, feed_forward
from megatron_eks.predict.parameters import padded_vocabulary

_GIGA = 1e9
# Rings and all-to-alls move `(n - 1) / n` of a message through each rank (Thakur et al. 2005, doi
# 10.1177/1094342005051521). A group inside a node talks over NVLink; one that leaves it has its
# members' share of the node's network.
# What NCCL's ring reaches of a link's rate: 2 x p5 reach 438 of 400 + NVLink's help, 2 x p4de 78 of
# 100 GB/s of a node (aws-samples/awsome-distributed-training); 8 H100 about 370 of 450.
_WIRE = 0.8
# PCIe 4 x16, one direction, shared by what leaves and what arrives over the host.
_PCIE_GB_S = 16.0


@dataclass(frozen=True)
class Wires:
    """What joins the ranks of one run."""

    hardware: Hardware
    model: ModelShape
    layout: Layout
    batch: Batch

    def tensor_seconds(self) -> float:
        """One layer's forward pass: two all-gathers and two reduce-scatters, or two all-reduces."""
        size = self.layout.tensor
        if size == 1:
            return 0.0
        message = self.batch.rank_tokens(self.layout) * self.model.hidden_size * _BF16
        return 4 * message * (size - 1) / size / self._rate(size, 1)

    def context_seconds(self) -> float:
        """One layer's forward pass: keys and values travel around the ring."""
        size = self.layout.context
        if size == 1:
            return 0.0
        model, tensor = self.model, self.layout.tensor
        groups = max(model.num_query_groups, tensor) / tensor
        if model.multi_latent_attention:
            groups = model.num_attention_heads / tensor
        sizes = model.key_size + model.value_size
        held = sizes * groups * _BF16 * self.batch.rank_tokens(self.layout)
        return held * (size - 1) / self._rate(size, self.layout.tensor)

    def expert_seconds(self) -> float:
        """One layer's forward pass: tokens to their experts, and back."""
        size = self.layout.expert * self.layout.expert_tensor
        if self.model.num_experts is None or size == 1:
            return 0.0
        share = self.layout.expert_tensor / self.layout.tensor
        routed = self.batch.rank_tokens(self.layout) * (self.model.moe_router_topk or 1) * share
        message = routed * self.model.hidden_size * _BF16
        node = self.hardware.gpus_per_node
        outside = max(0.0, 1 - node / size)
        over_network = message * outside / self._network(1)
        return 2 * (over_network + message * (1 - outside) / self._rate(min(size, node), 1))

    def pipeline_seconds(self) -> float:
        """One microbatch handed to the next stage."""
        if self.layout.pipeline == 1:
            return 0.0
        message = self.batch.rank_tokens(self.layout) * self.model.hidden_size * _BF16
        inside = self.layout.tensor * self.layout.context * self.layout.data
        within = inside * self.layout.pipeline <= self.hardware.gpus_per_node
        rate = self._rate(2, 1) if within else self._network(1)
        return message / self.layout.tensor / rate

    def data_seconds(self, message_bytes: float) -> float:
        """One reduce-scatter or all-gather of so many bytes among the replicas."""
        size = self.layout.data * self.layout.context
        return message_bytes * (size - 1) / size / self._rate(size, self.layout.tensor)

    def replica_seconds(self, message_bytes: float) -> float:
        """One reduce-scatter or all-gather of so many bytes among the replicas of an expert."""
        size = self.layout.expert_data
        stride = self.layout.expert * self.layout.expert_tensor
        return message_bytes * (size - 1) / size / self._rate(size, stride)

    def _rate(self, size: int, stride: int) -> float:
        """Bytes a second of a group of so many ranks, this far from each other."""
        node = self.hardware.gpus_per_node
        if size * stride <= node:
            if self.hardware.nvlink_gb_s:
                return self.hardware.nvlink_gb_s / 2 * _GIGA * _WIRE
            return _PCIE_GB_S * _GIGA * _WIRE
        return self._network(max(1, min(size, node // stride)))

    def _network(self, members: int) -> float:
        """Bytes a second of a group with so many members in each node."""
        return members * self.hardware.network_gb_s_per_gpu * _GIGA * _WIRE


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

    framework: Framework
    hardware: Hardware
    calibration: Calibration
    model: ModelShape
    layout: Layout
    batch: Batch

    def layer(self) -> Work:
        """Return the work of one layer, on average of those with experts and those without."""
        tokens = self.batch.rank_tokens(self.layout)
        model, tensor = self.model, self.layout.tensor
        mixed = model.expert_layers(0, model.num_layers) / model.num_layers
        dense = feed_forward(model, model.ffn_hidden_size, tensor)
        products = self._products(tokens, attention(model, tensor))
        products += mixed * self._experts(tokens) if mixed else 0.0
        products += (1 - mixed) * self._products(tokens, dense)
        pairs = attention_flops_per_token(model, self.batch.sequence_length) / tensor
        rate = self.calibration.attention(self.framework, self.hardware.generation)
        scores = tokens * pairs / (rate * self.hardware.peak_flops(fp8=False))
        kept = tokens * mixed * layer_bytes_per_token(model, self.layout, experts=True)
        kept += tokens * (1 - mixed) * layer_bytes_per_token(model, self.layout, experts=False)
        between = self.calibration.traffic * kept / self.hardware.memory_bytes_per_second
        return Work(
            forward_seconds=products + scores + between * _FORWARD_TRAFFIC,
            backward_seconds=_MATRIX_BACKWARD * products
            + _ATTENTION_BACKWARD * scores
            + between * (1 - _FORWARD_TRAFFIC),
            attention_seconds=scores,
        )

    def output(self) -> Work:
        """Return the work of the output layer and its loss, always in bf16."""
        tokens = self.batch.rank_tokens(self.layout)
        vocabulary = padded_vocabulary(self.model.vocab_size, self.layout.tensor)
        entries = vocabulary / self.layout.tensor
        product = self._product(tokens, self.model.hidden_size, entries, quantized=False)
        loss = tokens * entries * _LOGITS_TRAFFIC / self.hardware.memory_bytes_per_second
        return Work(product + loss / 2, _MATRIX_BACKWARD * product + loss / 2)

    def _experts(self, tokens: float) -> float:
        """Return the time of the routed and the shared experts of a layer."""
        model, layout = self.model, self.layout
        count = (model.num_experts or 1) / layout.expert
        routed = tokens * (model.moe_router_topk or 1) * layout.expert_tensor / layout.tensor
        each = feed_forward(model, model.expert_width, layout.expert_tensor)
        seconds = count * self._products(routed / count, each)
        if model.moe_shared_expert_intermediate_size:
            width = model.moe_shared_expert_intermediate_size
            seconds += self._products(tokens, feed_forward(model, width, layout.tensor))
        return seconds

    def _products(self, rows: float, matrices: Iterable[Matrix]) -> float:
        return sum(self._product(rows, each.inner, each.columns) for each in matrices)

    def _product(
        self, rows: float, inner: float, columns: float, *, quantized: bool | None = None
    ) -> float:
        """Return the time of a product of so many rows, inner dimension and columns."""
        fp8 = self.batch.fp8 if quantized is None else quantized
        share = self.calibration.matrix(self.framework, self.hardware.generation, fp8=fp8)
        compute = 2 * rows * inner * columns / (share * self.hardware.peak_flops(fp8=fp8))
        operands = _BF16 * (rows * inner + inner * columns + rows * columns)
        return compute + operands / self.hardware.memory_bytes_per_second
