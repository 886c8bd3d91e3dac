"""Seconds that a GPU computes on one microbatch of a layer.

A matrix product takes the time of its operations and the time of its operands' way to memory
(Williams et al. 2009, "Roofline", doi 10.1145/1498765.1498785, here as a sum); everything between
the products is bound by memory, and moves what is kept for the backward pass a few times.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from megatron_eks.catalog.models import ModelShape
from megatron_eks.predict.activations import layer_bytes_per_token
from megatron_eks.predict.hardware import Calibration, Framework, Hardware
from megatron_eks.predict.layout import Batch, Layout, Precision
from megatron_eks.predict.matrices import (
    Matrix,
    attention,
    attention_flops_per_token,
    expert,
    feed_forward,
    latent,
    mamba,
)
from megatron_eks.predict.parameters import padded_vocabulary

_BF16 = 2
# Flash attention's backward pass computes the scores again: five products for two (arXiv
# 2307.08691, section 3.1).
_ATTENTION_BACKWARD = 2.5
# A sequence of so many tokens reaches half of the rate of long ones (FlashAttention-3, arXiv
# 2407.08608, figures 5 and 6: 512 to 16 Ki tokens, both passes).
_SHORT_SEQUENCE = 700
# Heads of 64 reach three quarters of what heads of 128 do (the same figures).
_NARROW_HEAD, _HEAD = 64, 128
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
    again_seconds: float = 0.0
    """Of the modules that selective recomputation names, once more."""


# What a search asks for again and again, by all that it comes from.
_DONE: dict[Hashable, tuple[Work, Work]] = {}
_MOST = 4096


@dataclass(frozen=True)
class Worker:
    """One rank: its GPU, and its share of a run."""

    framework: Framework
    hardware: Hardware
    calibration: Calibration
    model: ModelShape
    layout: Layout
    batch: Batch

    def work(self) -> tuple[Work, Work]:
        """Return the work of one layer and of the output, the same in every stage and replica."""
        layout, batch = self.layout, self.batch
        key = (
            *(self.framework, self.hardware, self.calibration, self.model),
            *(layout.tensor, layout.context, layout.expert, layout.expert_tensor),
            *(layout.sequence_parallel, batch.micro_batch_size, batch.sequence_length),
            *(batch.precision, batch.software, batch.modules, batch.lora, batch.lora_targets),
            *(batch.capacity, batch.plain_layers, batch.plain_parts),
        )
        if key not in _DONE:
            if len(_DONE) > _MOST:
                _DONE.clear()
            _DONE[key] = self.layer(), self.output()
        return _DONE[key]

    def layer(self) -> Work:
        """Return the work of one layer, on average of those with experts and those without."""
        tokens, modules = self.batch.rank_tokens(self.layout), self.batch.modules
        model, tensor = self.model, self.layout.tensor
        mixed = model.expert_layers(0, model.num_layers) / model.num_layers
        parts = model.parts(1, mixed)
        around = parts["*"] * self._products(tokens, attention(model, tensor), "attention")
        dense = parts["-"] * self._products(
            tokens, feed_forward(model, model.ffn_hidden_size, tensor)
        )
        routed, shared = self._experts(tokens) if mixed else (0.0, 0.0)
        maps = parts["M"] * self._products(tokens, mamba(model, tensor)) if parts["M"] else 0.0
        experts = mixed * (routed + shared)
        length = self.batch.sequence_length
        pairs = parts["*"] * attention_flops_per_token(model, length) / tensor
        generation, software = self.hardware.generation, self.batch.software
        rate = self.calibration.attention(self.framework, generation, software)
        rate *= length / (length + _SHORT_SEQUENCE)
        rate *= _wide((model.key_size + model.value_size) / 2)
        scores = tokens * pairs / (rate * self.hardware.peak_flops("bf16"))
        between = self._between(tokens, mixed) + parts["M"] * self._scan(tokens)
        products = around + dense + experts + maps
        # Of latent attention's maps those that expand are most.
        parts = {
            "core_attn": scores,
            "mla_up_proj": around / 2 if model.multi_latent_attention else 0.0,
            "mlp": dense,
            "moe": experts,
            "shared_experts": mixed * shared,
        }
        named = modules or frozenset({"core_attn"})
        beside = self._adapters(tokens, mixed)
        return Work(
            forward_seconds=products + beside + scores + between * _FORWARD_TRAFFIC,
            backward_seconds=self._backward * products
            + _MATRIX_BACKWARD * beside
            + _ATTENTION_BACKWARD * scores
            + between * (1 - _FORWARD_TRAFFIC),
            attention_seconds=scores,
            again_seconds=sum(seconds for name, seconds in parts.items() if name in named),
        )

    def output(self) -> Work:
        """Return the work of the output layer and its loss, always in bf16."""
        tokens = self.batch.rank_tokens(self.layout)
        vocabulary = padded_vocabulary(self.model.vocab_size, self.layout.tensor)
        entries = vocabulary / self.layout.tensor
        product = self._product(tokens, self.model.hidden_size, entries, "bf16")
        loss = tokens * entries * _LOGITS_TRAFFIC / self.hardware.memory_bytes_per_second
        times = 1 + self.model.mtp_num_layers
        return Work(times * (product + loss / 2), times * (self._backward * product + loss / 2))

    @property
    def _backward(self) -> int:
        """Products in the backward pass for one in the forward pass: frozen, of inputs alone."""
        return 1 if self.batch.lora else _MATRIX_BACKWARD

    def _adapters(self, tokens: float, mixed: float) -> float:
        """Return the time of the narrow maps, bound by memory: input read, result added."""
        if not self.batch.lora:
            return 0.0
        model, layout = self.model, self.layout
        parts = [(tokens, 1.0, attention(model, layout.tensor))]
        if self.batch.lora_targets == "all":
            width = model.ffn_hidden_size
            parts.append((tokens, 1 - mixed, feed_forward(model, width, layout.tensor)))
            routed = tokens * (model.moe_router_topk or 1) / layout.tensor
            parts.append((routed, mixed, feed_forward(model, model.expert_width, 1)))
        moved = sum(
            rows * share * (each.inner + 4 * each.columns + 2 * self.batch.lora)
            for rows, share, matrices in parts
            for each in matrices
        )
        return _BF16 * moved / self.hardware.memory_bytes_per_second

    def _scan(self, tokens: float) -> float:
        """Return the time of a Mamba layer's convolution and scan, both ways: memory's."""
        channels = self.model.mamba_inner / self.layout.tensor
        moved = _BF16 * self.calibration["scan"] * tokens * channels
        return moved / self.hardware.memory_bytes_per_second

    def _between(self, tokens: float, mixed: float) -> float:
        """Return the time of what is done between the products, forward and backward."""
        kept = layer_bytes_per_token(self.model, self.layout, mixed)
        return self.calibration["traffic"] * tokens * kept / self.hardware.memory_bytes_per_second

    def _experts(self, tokens: float) -> tuple[float, float]:
        """Return the time of the routed and of the shared experts of a layer."""
        model, layout = self.model, self.layout
        count = (model.num_experts or 1) / layout.expert
        routed = tokens * (model.moe_router_topk or 1) * (self.batch.capacity or 1)
        routed *= layout.expert_tensor / layout.tensor
        seconds = count * self._products(routed / count, expert(model, layout.expert_tensor))
        seconds += self._products(tokens, latent(model), "latent")
        width = model.moe_shared_expert_intermediate_size
        shared = self._products(tokens, feed_forward(model, width, layout.tensor)) if width else 0.0
        return seconds, shared

    def _products(self, rows: float, matrices: Iterable[Matrix], part: str = "") -> float:
        """Return the time of a part's products, of which some layers' may stay in bf16."""
        batch = self.batch
        plain = batch.plain_layers / self.model.num_layers
        plain = 1.0 if part in batch.plain_parts else plain
        shares: dict[Precision, float] = {batch.precision: 1.0}
        if plain and batch.quantized:
            shares = {batch.precision: 1 - plain, "bf16": plain}
        return sum(
            share * self._product(rows, each.inner, each.columns, precision)
            for precision, share in shares.items()
            for each in matrices
        )

    def _product(self, rows: float, inner: float, columns: float, precision: Precision) -> float:
        """Return the time of a product of so many rows, inner dimension and columns."""
        calibration, tiles = self.calibration, self.calibration["tiles"]
        rate = calibration.matrix(self.framework, self.hardware.generation, precision)
        rate *= self.hardware.peak_flops(precision)
        rate *= calibration["ultra"] if self.hardware.is_ultra else 1.0
        # Small sides leave tiles and waves of the GPU's processors empty.
        filled = (1 + tiles / rows) * (1 + tiles / inner) * (1 + tiles / columns)
        moved = _BF16 * (rows * inner + inner * columns + rows * columns)
        if precision != "bf16" and self.hardware.tflops_fp8:
            moved += calibration["cast"] * rows * (inner + columns)
        compute = 2 * rows * inner * columns * filled / rate
        return compute + moved / self.hardware.memory_bytes_per_second


def _wide(head: float) -> float:
    """Return the rate of attention with heads of so many channels, 1 at 128."""
    return head / (head + _NARROW_HEAD) * (_HEAD + _NARROW_HEAD) / _HEAD
