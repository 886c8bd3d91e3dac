"""What is read of logs, in the words of the programs that write them."""

import math
from datetime import UTC, datetime

import pytest

from megatron_eks.programs import run_log

# Megatron-LM 0.19 (training_log), Megatron-Bridge, and megatron_eks/programs/trainer/metrics.py.
_MEGATRON = (
    "2026-11-22T13:00:01.123456789Z  [2026-11-22 13:00:01.123000] iteration       30/   10000 |"
    " consumed samples:        15360 | elapsed time per iteration (ms): 48712.3 |"
    " throughput per GPU (TFLOP/s/GPU): 130.4 | learning rate: 3.000000E-06 |"
    " global batch size:   512 | lm loss: 2.513000E+00 | loss scale: 1.0 | grad norm: 1.234 |"
    " number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
_OURS = (
    "step 12/100 | loss 2.51300 | grad norm 1.234 | lr 3.000e-06 | 19,408 tokens/s |"
    " 50.1 TFLOP/s/GPU | MFU 16.1 % | 30.25 GiB | 1.690 s | validation loss 2.60000\n"
)


def test_a_line_of_megatron():
    """All that its line has, and the kubelet's time."""
    (step,) = run_log.read([_MEGATRON]).steps
    assert str(step) == "30/10000, loss 2.513"
    assert step.seconds == pytest.approx(48.7123)
    assert (step.tflops_per_gpu, step.samples) == (130.4, 512)
    assert step.at == datetime(2026, 11, 22, 13, 0, 1, 123456, tzinfo=UTC)
    assert step.tokens_per_second is None


def test_a_loss_that_is_no_number_is_left_out_by_megatron():
    """The step is there all the same, for it is the newest."""
    (step,) = run_log.read([_MEGATRON.replace(" lm loss: 2.513000E+00 |", "")]).steps
    assert step.step == 30
    assert math.isnan(step.loss)
    assert step.finite_loss is None


def test_a_line_of_our_trainers():
    """They know tokens and MFU themselves."""
    (step,) = run_log.read([_OURS]).steps
    found = (step.step, step.steps, step.seconds, step.tokens_per_second, step.tflops_per_gpu)
    assert found == (12, 100, 1.69, 19408, 50.1)
    assert step.mfu == pytest.approx(0.161)
    assert step.at is None


@pytest.mark.parametrize(
    "line",
    [
        "step 10/200, loss: 1.23",
        "2026-11-22T13:00:01.123456789Z [0] step 10/200, loss 1.23",
        "step 10/200 | loss=1.23 | lr 1e-4",
        "step 10/200, loss = 1.23e+00, 3 s",
    ],
)
def test_a_line_of_another_program(line):
    """As docs/own-programs.md has it, with the spellings that it allows."""
    assert [str(step) for step in run_log.read([line]).steps] == ["10/200, loss 1.23"]


def test_checkpoints_written_and_read():
    """Of all three; what is only scheduled is not whole yet."""
    log = run_log.read(
        [
            "  successfully loaded checkpoint from /shared/c [ t 1/4, p 1/1 ] at iteration 500",
            "  scheduled an async checkpoint save at iteration    1000 to /shared/c",
            "  [2026-11-22 13:00:00.000] successfully saved checkpoint from iteration   1000 to /c",
            "goes on from step 40, /shared/c/iter_0000040",
            "saved checkpoint of step 50 to /shared/c",
            "saving checkpoint at iteration    1500 to /shared/c in torch_dist format",
        ]
    )
    assert [mark.step for mark in log.saves] == [1000, 50]
    assert [mark.step for mark in log.loads] == [500, 40]


def test_lines_that_only_look_like_steps():
    """Validation names an iteration too, and a prompt may hold anything."""
    lines = [
        " validation loss at iteration 500 | lm loss value: 2.1E+00 | lm loss PPL: 8.2E+00 |",
        "step 3/4 | loss maybe |",
        "2026-99-99T00:00:00.0Z iteration of no kind 1/2",
        "iteration 7/ | x",
        "\ufffd\ufffd",
    ]
    assert run_log.read(lines) == run_log.RunLog()


def test_one_log_of_several_ranks():
    """Steps of the one that writes them, marks of all."""
    first = run_log.read(["saved checkpoint of step 5 to x", "saved checkpoint of step 2 to x"])
    last = run_log.read([_MEGATRON])
    found = run_log.merged([first, last])
    assert [mark.step for mark in found.saves] == [2, 5]
    assert found.steps == last.steps
    assert found.first_at == last.steps[0].at
