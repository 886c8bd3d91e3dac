"""Guards judge whatever a file holds, and never raise."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megatron_eks.guards.check import check_manifests, check_templates
from tests import odd_values
from tests.guards import slips

TURNS = 8
"""Of each turn one in so many values is odd, another one each time: all at once would hide most."""


@pytest.mark.parametrize(
    "odd", [lambda old: [old], lambda old: {"a": old}, lambda _: "(", lambda _: None]
)
@pytest.mark.parametrize("turn", range(TURNS))
def test_another_type_in_each_place(odd, turn):
    """As slips do (tests/slips): a list, a mapping, a text that is no pattern, or nothing."""
    check_templates({name: _retyped(e, odd, turn) for name, e in slips.templates().items()})
    check_manifests([_retyped(each, odd, turn) for each in slips.manifests()])


@pytest.mark.sweep
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_value_anywhere_in_a_template(data):
    """Of each stack at once: all of them are read for each example."""
    check_templates({name: _changed(data, body) for name, body in slips.templates().items()})


@pytest.mark.sweep
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


def _retyped(body, odd, turn):
    numbers = count()

    def copy(node):
        if isinstance(node, dict):
            return {key: copy(each) for key, each in node.items()}
        if isinstance(node, list):
            return [copy(each) for each in node]
        return odd(node) if next(numbers) % TURNS == turn else node

    return copy(body)
