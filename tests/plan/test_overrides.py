"""Overrides in an image of one's own, and those inside a value."""

import pytest

from megatron_eks.config.errors import Level
from megatron_eks.plan.jobs.override_checks import check_override


@pytest.mark.parametrize(("image", "level"), [("megatron", Level.ERROR), ("x/y:1", Level.WARNING)])
def test_another_image_may_have_another_version(image, level):
    """What ours refuses may be there; then it is only said."""
    (found,) = check_override(image, "ddp.overlap_grad_reduc", True)  # noqa: FBT003 -- a value
    assert found.level is level


@pytest.mark.parametrize("name", ["peft.canonical_mapping.x", "model.vision_config.depth"])
def test_value_inside_a_value_is_the_recipes(name):
    """Its class is not known before the recipe runs; the program checks it."""
    assert list(check_override("megatron", name, 1)) == []
