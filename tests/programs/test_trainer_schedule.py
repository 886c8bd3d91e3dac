"""The learning rate over a run."""

import pytest

from megatron_eks.programs.trainer.config import Training, learning_rate

RUN = Training(max_steps=110, warmup_iters=10, learning_rate=1.0, min_learning_rate=0.1)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", {1: 0.1, 10: 1.0, 60: 1.0, 110: 1.0}),
        ("linear", {1: 0.1, 10: 1.0, 60: 0.55, 110: 0.1}),
        ("cosine", {1: 0.1, 10: 1.0, 35: 0.55 + 0.45 * 0.5**0.5, 60: 0.55, 110: 0.1}),
    ],
)
def test_schedule(schedule, expected):
    """It rises in a line, then follows its curve down to the least."""
    training = RUN.model_copy(update={"lr_schedule": schedule})
    assert {step: learning_rate(training, step) for step in expected} == pytest.approx(expected)


def test_without_warm_up_the_first_step_is_on_the_curve():
    """Nothing is divided by zero, not even in a run of warm-up alone."""
    assert learning_rate(Training(max_steps=1, warmup_iters=0), 1) == pytest.approx(1e-5)
    assert learning_rate(Training(max_steps=5, warmup_iters=5), 5) == pytest.approx(1e-4)
