"""The memory model against Megatron's own estimator and the facts it must reproduce."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from megatron_eks.catalog.models import PRESETS
from megatron_eks.predict.memory import (
    GIB,
    OVERHEAD_BYTES,
    Batch,
    Layout,
    estimate,
    padded_vocabulary,
    parameters,
)

LLAMA = PRESETS["llama-3.1-8b"]
BATCH = Batch(1, 4096, 128, "selective")


def gib(layout: Layout, batch: Batch = BATCH, model=LLAMA) -> float:
    """Return what a GPU holds without the fixed overhead."""
    return (estimate(model, layout, batch, 0).per_gpu_bytes - OVERHEAD_BYTES) / GIB


@pytest.mark.parametrize(
    ("preset", "billions"),
    [
        # Hugging Face model cards; GPT 7B is what Megatron prints for the workshop guide's flags.
        ("llama-2-7b", 6.738),
        ("llama-2-13b", 13.016),
        ("llama-2-70b", 68.977),
        ("llama-3.1-8b", 8.030),
        ("llama-3.1-70b", 70.554),
        ("llama-3.1-405b", 405.853),
        ("llama-3.2-1b", 1.236),
        ("llama-3.2-3b", 3.213),
        ("mistral-7b", 7.248),
        ("gpt-7b", 6.986),
    ],
)
def test_parameters_are_those_of_the_model_cards(preset, billions):
    """A model counted wrongly is planned wrongly."""
    assert parameters(PRESETS[preset]) / 1e9 == pytest.approx(billions, abs=0.001)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        # Megatron-LM `theoretical_memory_usage.py` (core_v0.19), Llama 3.1 8B on 16 GPUs.
        (Layout(4, 1, 1, 4), 21.3),
        (Layout(2, 1, 1, 8), 37.1),
        (Layout(4, 2, 1, 2), 15.2),
    ],
)
def test_agrees_with_megatrons_estimator(layout, expected):
    """Within 10 %: this model adds the logits' gradient, which Megatron's leaves out."""
    assert gib(layout) == pytest.approx(expected, rel=0.10)


def test_source_layout_needs_about_twice_a_p4d_gpu():
    """The workshop guide's GPT 7B without distributed optimizer needs more than 80 GiB."""
    layout = Layout(2, 1, 1, 8, sequence_parallel=False, distributed_optimizer=False)
    assert gib(layout, Batch(2, 4096, 32, "selective"), PRESETS["gpt-7b"]) == pytest.approx(
        83, rel=0.05
    )


def test_full_recomputation_keeps_less_than_selective():
    """Recomputing whole layers trades time for memory."""
    layout = Layout(2, 1, 1, 8)
    assert gib(layout, replace(BATCH, recompute="full")) < gib(layout)


def test_early_pipeline_stages_hold_more_microbatches():
    """In 1F1B the first stage has as many microbatches in flight as there are stages."""
    stages = estimate(LLAMA, Layout(1, 4, 1, 4), BATCH, 0).stages
    activations = [stage.activations_bytes for stage in stages]
    assert activations == sorted(activations, reverse=True)
    assert activations[0] == pytest.approx(4 * activations[3])
    assert [stage.logits_bytes > 0 for stage in stages] == [False, False, False, True]


def test_vocabulary_is_padded_as_megatron_pads_it():
    """257 becomes 384 at tensor parallel size 1 and 512 at 2 (multiples of 128 x size)."""
    assert (padded_vocabulary(257, 1), padded_vocabulary(257, 2)) == (384, 512)


@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([1, 2, 16]),
    micro=st.sampled_from([1, 2, 4]),
    recompute=st.sampled_from(["none", "selective", "full"]),
)
def test_more_parallelism_never_needs_more_memory(tensor, pipeline, data, micro, recompute):
    """More parallelism cannot make a rank larger, and a larger batch cannot shrink it."""
    batch = Batch(micro, 4096, 64, recompute)
    base = gib(Layout(tensor, pipeline, 1, data), batch)
    assert gib(Layout(tensor * 2, pipeline, 1, data), batch) <= base
    assert gib(Layout(tensor, pipeline, 1, data * 2), batch) <= base
    assert (
        gib(Layout(tensor, pipeline, 1, data), replace(batch, micro_batch_size=micro * 2)) >= base
    )
