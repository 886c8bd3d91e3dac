"""The whole templates of three very different clusters, so that no change goes unread."""

import json

import pytest

from tests import normalise

STACKS = ("Network", "Storage", "Images", "Cluster")


@pytest.mark.parametrize("stack", STACKS)
def test_template(cloud_assembly, snapshot, stack):
    """The template of each stack is the one that was reviewed."""
    body = json.loads((cloud_assembly / f"techpulse-{stack}.template.json").read_text())
    assert normalise.template(body, {}) == snapshot


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("example", ["p5-reservation", "private-cluster"])
def test_template_of_an_example(example_assembly, snapshot, example, stack):
    """A reservation with 32 cards a node, and a cluster without a way out."""
    (file,) = example_assembly(example).glob(f"*-{stack}.template.json")
    assert normalise.template(json.loads(file.read_text()), {}) == snapshot


def test_template_of_metrics_and_alarms(example_assembly, snapshot):
    """Off by default, and on in the example whose nodes end by themselves."""
    (file,) = example_assembly("p5-capacity-block").glob("*-Observability.template.json")
    assert normalise.template(json.loads(file.read_text()), {}) == snapshot


def test_no_other_template(cloud_assembly):
    """A new stack needs a snapshot of its own."""
    found = {path.name for path in cloud_assembly.glob("*.template.json")}
    assert found == {f"techpulse-{stack}.template.json" for stack in STACKS}
