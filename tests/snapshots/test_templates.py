"""The whole templates of the default cluster, so that no change goes unread."""

import json

import pytest

from tests import normalise

STACKS = ("Network", "Storage", "Images", "Cluster")


@pytest.mark.parametrize("stack", STACKS)
def test_template(cloud_assembly, snapshot, stack):
    """The template of each stack is the one that was reviewed."""
    body = json.loads((cloud_assembly / f"techpulse-{stack}.template.json").read_text())
    assert normalise.template(body, {}) == snapshot


def test_no_other_template(cloud_assembly):
    """A new stack needs a snapshot of its own."""
    found = {path.name for path in cloud_assembly.glob("*.template.json")}
    assert found == {f"techpulse-{stack}.template.json" for stack in STACKS}
