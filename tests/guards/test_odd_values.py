"""Guards judge whatever a file holds, and never raise."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_eks.guards.check import check_manifests, check_templates
from tests import odd_values
from tests.guards import slips

pytestmark = pytest.mark.sweep


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_any_value_anywhere_in_a_template(data):
    """Of each stack."""
    templates = slips.templates()
    stack = data.draw(st.sampled_from(sorted(templates)))
    place = data.draw(st.sampled_from(list(odd_values.places(templates[stack]))))
    changed = odd_values.put(templates[stack], place, data.draw(odd_values.JSON))
    check_templates({**templates, stack: changed})


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_any_value_anywhere_in_a_manifest(data):
    """Of the platform, the validation and the jobs."""
    objects = slips.manifests()
    index = data.draw(st.integers(0, len(objects) - 1))
    place = data.draw(st.sampled_from(list(odd_values.places(objects[index]))))
    changed = odd_values.put(objects[index], place, data.draw(odd_values.JSON))
    check_manifests([*objects[:index], changed, *objects[index + 1 :]])
