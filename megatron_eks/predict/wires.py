"""Seconds that a rank sends to others: one layer's forward pass, a microbatch, a step."""

from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.hardware import Hardware
from megatron_eks.predict.layout import Batch, Layout

_BF16 = 2
_GIGA = 1e9
# Rings and all-to-alls move `(n - 1) / n` of a message through each rank (Thakur et al. 2005, doi
# 10.1177/1094342005051521). A group inside a node talks over NVLink; one that leaves it has its
# members' share of the node's network.
# What NCCL's ring reaches of a link's rate: 2 x p5 reach 438 of 400 + NVLink's help, 2 x p4de 78 of
# 100 GB/s of a node (aws-samples/awsome-distributed-training); 8 H100 about 370 of 450.
_WIRE = 0.8
# PCIe 4 x16, one direction, shared by what leaves and what arrives over the host.
_PCIE_GB_S = 16.0
# One message to a neighbour: NCCL's small all-reduces take 2 (n - 1) of them, 160 microseconds over
# 2 x p4de (aws-samples/awsome-distributed-training, nccl-tests), and a few tens inside a node.
_NETWORK_LATENCY, _NVLINK_LATENCY = 25e-6, 5e-6


@dataclass(frozen=True)
class Wires:
    """What joins the ranks of one run."""

    hardware: Hardware
    model: ModelShape
    layout: Layout
    batch: Batch
    efa_gb_s: float
    """What each GPU sends to experts in other nodes by NCCL over EFA."""

    def tensor_seconds(self) -> float:
        """One layer's forward pass: each of its parts gathers and scatters, or reduces."""
        size = self.layout.tensor
        if size == 1:
            return 0.0
        message = self.batch.rank_tokens(self.layout) * self.model.hidden_size * _BF16
        parts = 1 if self.model.hybrid_layer_pattern else 2
        return 2 * parts * message * (size - 1) / size / self._rate(size, 1)

    def context_seconds(self) -> float:
        """One layer's forward pass: keys and values travel around the ring."""
        size, tensor = self.layout.context, self.layout.tensor
        if size == 1:
            return 0.0
        model = self.model
        groups = max(model.num_query_groups, tensor) / tensor
        if model.multi_latent_attention:
            groups = model.num_attention_heads / tensor
        sizes = model.key_size + model.value_size
        held = sizes * groups * _BF16 * self.batch.rank_tokens(self.layout)
        inside = size * tensor <= self.hardware.gpus_per_node
        latency = _NVLINK_LATENCY if inside else _NETWORK_LATENCY
        return (size - 1) * (held / self._rate(size, tensor) + latency)

    def expert_seconds(self) -> float:
        """One forward pass of a layer with experts: tokens to them, and back."""
        size, divided = self.layout.expert, self.layout.expert_tensor
        topk = (self.model.moe_router_topk or 1) * (self.batch.capacity or 1)
        if self.model.num_experts is None or size * divided == 1:
            return 0.0
        message = self.batch.rank_tokens(self.layout) * self.model.expert_hidden * _BF16
        message /= self.layout.tensor
        # Ranks that share an expert stand side by side, and gather what one of them has received.
        shared = 2 * message * topk * (divided - 1) / self._rate(divided, 1)
        if size == 1:
            return shared
        node = max(1, self.hardware.gpus_per_node // divided)
        outside = max(0.0, 1 - node / size) * topk
        if self.batch.flex and outside:
            # One copy to each node that has any of a token's experts, and from there by NVLink.
            nodes = size / node
            outside = (nodes - 1) * (1 - (1 - 1 / nodes) ** topk)
        inside = topk * min(1.0, node / size) * (1 - 1 / min(size, node))
        rate = self._network(1)
        if self.hardware.efa and not self.batch.flex:
            rate = min(rate, self.efa_gb_s * _GIGA)
        over_network = message * outside / rate
        latency = _NETWORK_LATENCY if outside else _NVLINK_LATENCY
        over_nvlink = message * inside / self._rate(min(size, node), 1)
        return shared + 2 * (over_network + over_nvlink + latency)

    def pipeline_seconds(self) -> float:
        """One microbatch handed to the next stage."""
        if self.layout.pipeline == 1:
            return 0.0
        message = self.batch.rank_tokens(self.layout) * self.model.hidden_size * _BF16
        inside = self.layout.tensor * self.layout.context * self.layout.data
        within = inside * self.layout.pipeline <= self.hardware.gpus_per_node
        rate = self._rate(2, 1) if within else self._network(1)
        return message / self.layout.tensor / rate + _NETWORK_LATENCY

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
