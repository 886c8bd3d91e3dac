"""Latent attention, shared experts and dense layers beside sparse ones, against model cards."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.predictions import HARDWARE
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.matrices import model_flops_per_token
from megatron_eks.predict.memory import GIB, estimate
from megatron_eks.predict.parameters import parameters
from megatron_eks.predict.settings import megatron_fsdp, with_arguments
from megatron_eks.predict.throughput import megatron_speed

# Hugging Face `config.json` of deepseek-ai/DeepSeek-V2-Lite.
LITE = ModelShape(
    num_layers=27,
    hidden_size=2048,
    ffn_hidden_size=10944,
    num_attention_heads=16,
    num_query_groups=16,
    kv_channels=128,
    vocab_size=102400,
    max_position_embeddings=163840,
    num_experts=64,
    moe_router_topk=6,
    moe_ffn_hidden_size=1408,
    moe_shared_expert_intermediate_size=2816,
    moe_layer_freq=(0, *(1,) * 26),
    multi_latent_attention=True,
)
# And of deepseek-ai/DeepSeek-V3, without its layer that predicts a second token.
V3 = replace(
    LITE,
    num_layers=61,
    hidden_size=7168,
    ffn_hidden_size=18432,
    num_attention_heads=128,
    num_query_groups=128,
    vocab_size=129280,
    num_experts=256,
    moe_router_topk=8,
    moe_ffn_hidden_size=2048,
    moe_shared_expert_intermediate_size=2048,
    moe_layer_freq=(0, 0, 0, *(1,) * 58),
    q_lora_rank=1536,
)
BATCH = Batch(1, 4096, 16, "none")
LLAMA = PRESETS["llama-3.1-8b"]


@pytest.mark.parametrize(("model", "billions"), [(LITE, 15.7), (V3, 671.0)])
def test_parameters_are_those_of_the_model_cards(model, billions):
    """DeepSeek's papers give 15.7 B (arXiv 2405.04434) and 671 B (arXiv 2412.19437)."""
    assert parameters(model) / 1e9 == pytest.approx(billions, rel=0.003)


# NVIDIA-NeMo/Megatron-Bridge, nemotron_3_nano_4b.py and nemotron_h_provider.py (Nemotron 3 Nano).
NANO_4B = ModelShape(
    num_layers=42,
    hidden_size=3136,
    ffn_hidden_size=12544,
    num_attention_heads=40,
    num_query_groups=8,
    kv_channels=128,
    vocab_size=131072,
    max_position_embeddings=262144,
    swiglu=False,
    hybrid_layer_pattern="M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-",
    mamba_num_heads=96,
    mamba_head_dim=80,
)
NANO = replace(
    NANO_4B,
    num_layers=52,
    hidden_size=2688,
    ffn_hidden_size=1856,
    num_attention_heads=32,
    num_query_groups=2,
    num_experts=128,
    moe_router_topk=6,
    moe_shared_expert_intermediate_size=3712,
    hybrid_layer_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    mamba_num_heads=64,
    mamba_head_dim=64,
)


def test_a_hybrid_has_the_parameters_of_its_model_card():
    """To the last one of Nano 4B, and 3.6 of Nano's 31.6 B work on a token."""
    assert parameters(NANO_4B) == 3_973_556_832
    assert parameters(NANO) / 1e9 == pytest.approx(31.6, rel=0.001)
    active = replace(NANO, num_experts=NANO.moe_router_topk)
    assert parameters(active) / 1e9 == pytest.approx(3.6, rel=0.02)


def test_a_hybrid_has_the_operations_that_megatron_counts():
    """6.92 G a token, forward, and a router's besides (`hybrid_flops` of megatron/training)."""
    routers = 23 * 2 * NANO.hidden_size * (NANO.num_experts or 0)
    assert model_flops_per_token(NANO, 8192) / 3 - routers == pytest.approx(6.92e9, rel=0.002)


def test_a_layer_of_a_hybrid_keeps_what_its_part_keeps():
    """More of a pattern's heavy letters, more memory; a scan takes time that a GPU's memory has."""
    layout, batch = Layout(1, 1, 1, 8, expert=8), Batch(1, 8192, 4, "none")
    fewer = replace(NANO, hybrid_layer_pattern="MEMEM*-MEMEM" + "M" * 40)
    assert (
        estimate(fewer, layout, batch, 0).fullest.activations_bytes
        < estimate(NANO, layout, batch, 0).fullest.activations_bytes
    )
    slow = replace(HARDWARE["h100"], memory_gb_s=1000.0)
    fast, late = (megatron_speed(NANO_4B, layout, batch, gpu) for gpu in (HARDWARE["h100"], slow))
    assert late.compute_seconds > 1.5 * fast.compute_seconds
    assert fast.measured_rows == 34


def test_experts_behind_a_latent_map_are_narrower():
    """Their weights, and what travels to them, shrink with it."""
    narrow = replace(NANO, moe_latent_size=672)
    assert parameters(narrow) < 0.35 * parameters(NANO)
    layout, batch = Layout(1, 1, 1, 64, expert=64), Batch(1, 8192, 4, "none")
    wide, less = (
        megatron_speed(model, layout, batch, HARDWARE["h100"]).communication_seconds
        for model in (NANO, narrow)
    )
    assert less < 0.5 * wide


def test_active_parameters_are_those_of_the_model_card():
    """Of DeepSeek-V3 37 B work on a token."""
    active = replace(V3, num_experts=V3.moe_router_topk)
    assert parameters(active) / 1e9 == pytest.approx(37, rel=0.02)


def test_stages_hold_the_layers_that_they_have():
    """The stage with the dense layers has fewer parameters."""
    first, second, *_ = estimate(V3, Layout(1, 61, 1, 64, expert=64), BATCH, 0).stages
    assert first.parameters < second.parameters * 3
    dense, sparse = (
        estimate(replace(V3, moe_layer_freq=often), Layout(1, 1, 1, 64, expert=64), BATCH, 0)
        for often in ((0,) * 61, (1,) * 61)
    )
    mixed = estimate(V3, Layout(1, 1, 1, 64, expert=64), BATCH, 0)
    assert dense.per_gpu_bytes < mixed.per_gpu_bytes < sparse.per_gpu_bytes


@given(
    expert=st.sampled_from([1, 2, 4]),
    expert_tensor=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "full"]),
)
def test_more_ranks_for_experts_never_hold_more_of_them(expert, expert_tensor, recompute):
    """Expert and expert tensor parallelism divide the same parameters."""
    batch = replace(BATCH, recompute=recompute)

    def held(layout):
        stage = estimate(LITE, layout, batch, 0).stages[0]
        return stage.parameters, stage.optimizer_bytes

    base = held(Layout(2, 1, 1, 8, expert=expert, expert_tensor=expert_tensor))
    for more in ({"expert": 2 * expert}, {"expert_tensor": 2 * expert_tensor}):
        sizes = {"expert": expert, "expert_tensor": expert_tensor} | more
        fewer = held(Layout(2, 1, 1, 8, **sizes))
        assert fewer[0] < base[0]
        assert fewer[1] <= base[1] * 1.001  # shares are rounded down


def test_experts_take_so_many_tokens_and_no_more():
    """A factor scales work and traffic, frees the host from counting, and must be a number."""
    factor = ("--moe-expert-capacity-factor",)
    batch = with_arguments(BATCH, LITE.num_layers, (*factor, "1.0"))
    assert batch.capacity == 1.0
    for wrong in ("-1", "0", "inf", "nan", "much"):
        assert with_arguments(BATCH, LITE.num_layers, (*factor, wrong)).capacity is None
    layout, gpu = Layout(1, 1, 1, 16, expert=16), HARDWARE["h100"]
    free, once, twice = (
        megatron_speed(LITE, layout, replace(batch, capacity=size), gpu)
        for size in (None, 1.0, 2.0)
    )
    assert once.launch_seconds < free.launch_seconds
    assert once.compute_seconds == pytest.approx(free.compute_seconds)
    assert once.compute_seconds < twice.compute_seconds < 2 * once.compute_seconds
    assert once.communication_seconds < twice.communication_seconds
    held = [
        estimate(LITE, layout, replace(batch, capacity=size), 0).fullest.activations_bytes
        for size in (1.0, None, 2.0)
    ]
    assert held == sorted(held)


def test_fsdp_inside_megatron_shards_everything():
    """Two kinds: Megatron's needs its strategy said, PyTorch's keeps gradients twice."""
    strategy = ("--data-parallel-sharding-strategy", "optim_grads_params")
    assert megatron_fsdp(("--use-megatron-fsdp",)) is None
    assert megatron_fsdp(("--use-megatron-fsdp", *strategy)) == "megatron"
    assert megatron_fsdp(("--use-torch-fsdp2",)) == "torch"
    layout = Layout(1, 1, 1, 64)
    plain, own, torch = (
        estimate(LLAMA, replace(layout, fsdp=kind), BATCH, 0).stages[0]
        for kind in (None, "megatron", "torch")
    )
    share = parameters(LLAMA) / 64
    less = estimate(LLAMA, replace(layout, fsdp="gradients"), BATCH, 0).stages[0]
    assert plain.weights_bytes - own.weights_bytes > 40 * GIB
    assert plain.weights_bytes > less.weights_bytes > own.weights_bytes
    assert own.optimizer_bytes == plain.optimizer_bytes
    assert torch.weights_bytes - own.weights_bytes == pytest.approx(2 * share, rel=0.01)


def test_fsdp_inside_megatron_sends_more():
    """It gathers the weights again for each microbatch."""
    layout = Layout(1, 1, 1, 64)
    plain, sharded = (
        megatron_speed(LLAMA, replace(layout, fsdp=kind), BATCH, HARDWARE["a100"])
        for kind in (None, "megatron")
    )
    assert sharded.communication_seconds > 4 * plain.communication_seconds
    assert sharded.compute_seconds == plain.compute_seconds


def test_what_is_computed_again_or_offloaded_is_not_kept():
    """And what is kept in FP8 alone is not kept in bf16."""
    layout, fp8 = Layout(1, 1, 1, 64, expert=64), replace(BATCH, precision="fp8")

    def peak(batch):
        return estimate(V3, layout, batch, 0).per_gpu_bytes

    again = replace(BATCH, recompute="selective", modules=frozenset({"moe_act", "mla_up_proj"}))
    assert peak(BATCH) > peak(replace(again, modules=frozenset({"moe_act"}))) > peak(again)
    assert peak(BATCH) > peak(replace(BATCH, offloaded=0.5)) > peak(replace(BATCH, offloaded=1.0))
    assert peak(fp8) > peak(replace(fp8, fp8_weights=True))
    assert peak(fp8) > peak(replace(fp8, transposed=False))
    assert peak(replace(BATCH, recompute="full")) < peak(again)


def test_a_window_and_a_second_token():
    """Attention within a window is cheaper; a layer that predicts ahead costs memory and time."""
    layout, batch = Layout(1, 1, 1, 8), Batch(1, 32768, 16, "full")
    near, ahead = replace(LLAMA, window_size=1024), replace(LLAMA, mtp_num_layers=1)
    speeds = [
        megatron_speed(model, layout, batch, HARDWARE["h100"]) for model in (near, LLAMA, ahead)
    ]
    assert sorted(speed.step_seconds for speed in speeds) == [each.step_seconds for each in speeds]
    half = replace(near, window_attn_skip_freq=2)
    assert near.seen(32768) < half.seen(32768) < LLAMA.seen(32768)
    peaks = [estimate(model, layout, batch, 0).per_gpu_bytes for model in (LLAMA, ahead)]
    assert peaks[1] > peaks[0]
