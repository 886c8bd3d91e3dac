"""What Megatron's own arguments say about memory and speed."""

from dataclasses import replace

import pytest

from megatron_eks.predict.layout import Batch, Stages
from megatron_eks.predict.settings import States, megatron_states, pipeline_stages, with_arguments

BATCH = Batch(1, 4096, 16, "none")


@pytest.mark.parametrize(
    ("arguments", "states"),
    [
        ((), States(4, 12)),
        (("--grad-reduce-in-bf16",), States(2, 12)),
        (("--optimizer", "dist_muon"), States(4, 8)),
        # 16 bits of the master weight are the bf16 weight itself.
        (("--use-precision-aware-optimizer",), States(4, 10)),
        (
            (
                *("--use-precision-aware-optimizer", "--main-grads-dtype", "bf16"),
                *("--exp-avg-dtype=bf16", "--exp-avg-sq-dtype", "fp8"),
            ),
            States(2, 5),
        ),
    ],
)
def test_the_optimizer_keeps_what_megatron_was_told(arguments, states):
    """By its own arguments, as `optimizer_config.py` takes them."""
    assert megatron_states(arguments) == states


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("--enable-cuda-graph", {"graphs": "partial"}),
        ("--cuda-graph-impl=full_iteration", {"graphs": "full"}),
        ("--cuda-graph-impl=none --swiglu", {}),
        ("--recompute-modules moe_act mla_up_proj", {"modules": {"moe_act", "mla_up_proj"}}),
        ("--cpu-offloading-num-layers 8", {"offloaded": 0.25}),
        ("--fp8-param-gather", {"fp8_weights": True}),
        ("--fp4-format e2m1", {"precision": "nvfp4"}),
        ("--first-last-layers-bf16 --num-layers-at-end-in-bf16 3", {"plain_layers": 4}),
        ("--num-layers-at-end-in-bf16=3", {}),
        ("--moe-token-dispatcher-type flex", {"dispatcher": "deepep"}),
        ("--overlap-moe-expert-parallel-comm", {"expert_overlap": True}),
    ],
)
def test_a_batch_is_computed_as_megatron_was_told(words, changes):
    """By its own arguments, those that decide memory or speed."""
    assert with_arguments(BATCH, 32, words.split()) == replace(BATCH, **changes)


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        ("", (8, 8, 8, 8)),
        (
            "--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 7",
            (5, 10, 10, 7),
        ),
        ("--pipeline-model-parallel-layout Et*3|(tt|)*14tL --x", (9, 8, 8, 7)),
        (
            "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
            (8, 9, 8, 7),
        ),
    ],
)
def test_stages_have_the_layers_that_megatron_was_told(words, counts):
    """32 layers in four stages; a layout of chunks goes around the ranks."""
    stages = pipeline_stages(words.split())
    assert tuple(stages.layers(32, 4, stage) for stage in range(4)) == counts
    assert (stages == Stages()) == (not words)
