"""Guards judge whatever a file holds, and never raise."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_eks.guards.check import check_manifests, check_templates
from tests import odd_values
from tests.guards import slips

pytestmark = pytest.mark.sweep


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_value_anywhere_in_a_template(data):
    """Of each stack at once: all of them are read for each example."""
    check_templates({name: _changed(data, body) for name, body in slips.templates().items()})


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_value_anywhere_in_a_manifest(data):
    """Of three objects of the platform, the validation and the jobs."""
    objects = list(slips.manifests())
    for index in data.draw(st.sets(st.integers(0, len(objects) - 1), min_size=1, max_size=3)):
        objects[index] = _changed(data, objects[index])
    check_manifests(objects)


def _changed(data, body):
    place = data.draw(st.sampled_from(list(odd_values.places(body))))
    return odd_values.put(body, place, data.draw(odd_values.JSON))
