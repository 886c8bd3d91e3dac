"""The speed model against published runs, and what must hold whatever is measured."""

import math
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import measured
from benchmarks.errors import constant_efficiency, inside, kendall_tau, relative
from benchmarks.fit import fit, loss
from benchmarks.predictions import HARDWARE, does_not_fit, predicted_tokens
from megatron_eks.catalog.models import PRESETS
from megatron_eks.predict.hardware import CALIBRATION, Hardware
from megatron_eks.predict.layout import Batch, Layout
from megatron_eks.predict.matrices import model_flops_per_token
from megatron_eks.predict.throughput import fsdp_speed, megatron_speed

ROWS = [row for row in measured.throughput() if not row.part.startswith(("blind", "hybrids"))]
FITTED = [row for row in ROWS if row.part == "fit"]
CHOSEN = [row for row in ROWS if row.part == "choose"]
FAMILIES = sorted({row.family for row in FITTED + CHOSEN})
H100 = HARDWARE["h100"]
LLAMA = PRESETS["llama-3.1-8b"]


def test_a_lineage_of_models_is_on_one_side():
    """Siblings on both sides would make an error look small that is not."""
    sides: dict[tuple[str, str], set[str]] = {}
    for row in ROWS:
        lineage = row.family.removeprefix("fsdp ").split()[0]
        sides.setdefault((row.framework, lineage), set()).add(row.part)
    assert all(len(side) == 1 for side in sides.values())
    assert {part for side in sides.values() for part in side} == {"fit", "choose", "report"}


def test_median_error_of_rows_that_nothing_was_fitted_to():
    """Rows to choose the form of the model with; those to report are asserted nowhere."""
    constant = constant_efficiency(FITTED)
    off = median(relative(CHOSEN, predicted_tokens))
    assert off <= 0.13
    assert off < 0.6 * median(relative(CHOSEN, constant))


def test_nine_of_ten_runs_lie_in_the_printed_range():
    """A range that most runs leave says nothing."""
    assert fmean(inside(row) for row in CHOSEN) >= 0.9
    assert fmean(inside(row) for row in FITTED) >= 0.9


@pytest.mark.parametrize("family", FAMILIES)
def test_order_within_a_family_is_kept(family):
    """Kendall's tau of at least 0.8: a faster layout is predicted to be faster."""
    tau = kendall_tau([row for row in ROWS if row.family == family])
    assert tau is None or tau >= (0.3 if family.startswith("qwen3") else 0.8)


def test_better_than_one_efficiency_for_each_kind_of_gpu():
    """The simplest predictor, with a constant for each framework, GPU and precision."""
    constant = constant_efficiency(FITTED)
    assert fmean(relative(FITTED, predicted_tokens)) < 0.5 * fmean(relative(FITTED, constant))


def test_at_most_2_percent_of_what_ran_is_refused():
    """What a row does not say, such as layers that wait in the host's memory, may be missing."""
    assert sum(map(does_not_fit, ROWS)) <= 0.02 * len(ROWS)


def test_constants_are_what_the_script_fits():
    """A constant that was changed by hand would be found here."""
    _, least = fit(FITTED, steps=(1.1,))
    assert least > 0.99 * loss(FITTED, CALIBRATION)


def test_operations_are_counted_as_megatron_counts_them():
    """14,451 tokens a second of Llama 3 8B at 8 Ki are published as 744 TFLOP/s."""
    assert model_flops_per_token(LLAMA, 8192) * 14451 == pytest.approx(744e12, rel=0.001)


@given(
    preset=st.sampled_from(["llama-3.1-8b", "llama-2-70b", "gpt-7b", "mixtral-8x7b"]),
    gpu=st.sampled_from(sorted(HARDWARE)),
    tensor=st.sampled_from([1, 2, 8]),
    stages=st.sampled_from([(1, 1), (4, 1), (4, 2)]),
    layers=st.integers(1, 7),
)
def test_more_recomputation_never_takes_less_time(preset, gpu, tensor, stages, layers):
    """None, selective, all layers; and blocks of layers between none and all."""
    layout = Layout(tensor, stages[0], 1, 4, virtual_pipeline=stages[1])
    none = Batch(1, 4096, 16, "none")
    every = replace(none, recompute="full", recompute_method="uniform")
    block = replace(every, recompute_method="block", recompute_layers=layers)
    for chain in (
        (none, replace(none, recompute="selective"), every),
        (none, block, replace(block, recompute_layers=layers + 1), every),
    ):
        for speed in (megatron_speed, fsdp_speed):
            seconds = [
                speed(PRESETS[preset], layout, batch, HARDWARE[gpu]).step_seconds for batch in chain
            ]
            # Where the host's launches decide, all are alike, but for the last bits of their sums.
            assert all(more >= less * (1 - 1e-12) for less, more in pairwise(seconds))


@given(
    rows=st.sampled_from(ROWS),
    network=st.sampled_from([1.5, 4.0]),
)
def test_better_hardware_is_never_slower(rows, network):
    """More operations, links or network cannot lengthen a step."""
    base = HARDWARE[rows.gpu]
    speed = fsdp_speed if rows.framework == "fsdp" else megatron_speed

    def tokens(hardware: Hardware) -> float:
        found = speed(rows.model, rows.layout, rows.batch, hardware)
        return found.tokens_per_second_per_gpu

    faster = replace(base, network_gb_s_per_gpu=base.network_gb_s_per_gpu * network)
    assert tokens(faster) >= tokens(base)
    assert tokens(replace(base, nvlink_gb_s=base.nvlink_gb_s * network)) >= tokens(base)


MOE = replace(LLAMA, num_experts=64, moe_router_topk=8, moe_ffn_hidden_size=1024)
APART = Layout(tensor=1, pipeline=1, context=1, data=64, expert=32)


def seconds(batch: Batch, hardware: Hardware = H100, model=MOE) -> float:
    """Return the predicted step of experts that lie over four nodes."""
    return megatron_speed(model, APART, batch, hardware).step_seconds


def test_nccl_over_efa_takes_longer_to_experts_in_other_nodes():
    """But not to those in the node, and not where no all-to-all of NCCL carries tokens."""
    every, efa = Batch(4, 4096, 8, "none"), replace(H100, efa=True)
    assert seconds(every, efa) > 1.05 * seconds(every)
    deepep = replace(every, dispatcher="deepep")
    assert seconds(deepep, efa) == seconds(deepep)
    inside = replace(APART, expert=8)
    one, other = (megatron_speed(MOE, inside, every, each) for each in (H100, efa))
    assert one == other


def test_what_is_computed_again_is_started_again():
    """AWS's Qwen3 235B on B300 took 1.4 times as long, and waited for its host in both."""
    small = Batch(1, 512, 8, "none")
    assert seconds(replace(small, recompute="full")) / seconds(small) > 1.25


def test_a_power_limit_slows_what_computes_and_not_what_waits():
    """The clock falls as the root of the power; memory and wires keep their rates."""
    half = replace(H100, power=0.5)
    assert half.peak_flops("fp8") == pytest.approx(H100.peak_flops("fp8") / math.sqrt(2))
    assert half.memory_bytes_per_second == H100.memory_bytes_per_second
    step = Batch(1, 8192, 8, "none")
    assert 1.2 < seconds(step, half, LLAMA) / seconds(step, model=LLAMA) < math.sqrt(2)


def test_frozen_weights_have_two_products_of_three():
    """And reduce next to nothing: LoRA takes between a half and nine tenths of a step."""
    step = Batch(1, 4096, 8, "none")
    adapted = seconds(replace(step, lora=16), model=LLAMA) / seconds(step, model=LLAMA)
    assert 0.5 < adapted < 0.9
    # 402 TFLOP/s at 12,472.87 tokens of Llama 3.1 8B (NeMo AutoModel, performance-summary.mdx).
    flops = model_flops_per_token(LLAMA, 4096, frozen=True)
    assert flops * 12472.87 == pytest.approx(402e12, rel=0.05)


def test_layers_that_stay_in_bf16_take_the_time_of_bf16():
    """All of them as if nothing was in FP8, some of them between both, attention alone less."""
    whole, fp8 = Batch(1, 8192, 8, "none"), Batch(1, 8192, 8, "none", precision="fp8")
    kept = [seconds(replace(fp8, plain_layers=count), model=LLAMA) for count in (0, 8, 32)]
    assert kept == sorted(kept)
    assert kept[-1] == pytest.approx(seconds(whole, model=LLAMA))
    attention = replace(fp8, plain_parts=frozenset({"attention"}))
    assert kept[0] < seconds(attention, model=LLAMA) < kept[-1]


def test_parts_of_a_step_add_up():
    """What is printed of a step is the step."""
    speed = megatron_speed(
        LLAMA, Layout(2, 2, 1, 2, virtual_pipeline=2), Batch(1, 4096, 16, "none"), H100
    )
    parts = (
        speed.compute_seconds
        + speed.communication_seconds
        + speed.launch_seconds
        + speed.bubble_seconds
        + speed.optimizer_seconds
    )
    assert math.isclose(parts, speed.step_seconds)
    assert min(speed.compute_seconds, speed.communication_seconds, speed.bubble_seconds) > 0
    tokens = 2 * 16 * 4096
    assert tokens / speed.step_seconds / 8 == pytest.approx(speed.tokens_per_second_per_gpu)
    assert speed.low < speed.tokens_per_second_per_gpu < speed.high


def test_tensor_parallelism_over_a_network_is_slow():
    """Each layer waits for it, so a group that leaves its node costs speed."""
    batch = Batch(1, 4096, 16, "none")
    node = megatron_speed(LLAMA, Layout(8, 1, 1, 2), batch, H100)
    split = megatron_speed(LLAMA, Layout(8, 1, 1, 2), batch, replace(H100, gpus_per_node=4))
    assert split.tokens_per_second_per_gpu < 0.9 * node.tokens_per_second_per_gpu
