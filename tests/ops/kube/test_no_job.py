"""A job of which nobody knows: what is named instead."""

import pytest

from megatron_eks.ops.failure import NoJob


@pytest.mark.parametrize(
    ("name", "there", "files", "remedy"),
    [
        ("trian-7b", ["train-7b"], ["train-7b"], "did you mean 'train-7b'? there: train-7b"),
        (
            "trian-7b",
            [],
            ["train-7b"],
            "did you mean 'train-7b'? there: none; start it with: meks submit train-7b",
        ),
        ("train-7b", ["eval"], ["train-7b"], "there: eval; start it with: meks submit train-7b"),
        ("other", ["eval"], ["train-7b"], "there: eval; job files: train-7b"),
        ("other", [], [], "there: none"),
    ],
)
def test_names_that_exist(name, there, files, remedy):
    """A typing error is never proposed as something to submit."""
    assert NoJob("training", name, there).beside(files).remedy == remedy
