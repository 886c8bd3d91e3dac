"""What the project writes and prints is what the committed digests were taken of."""

import json
from dataclasses import replace

import pytest

from tests import emitted
from tests.baseline import digests

HOW = "if this is meant: python -m tests.baseline.digests, and say why in the commit"


@pytest.fixture(scope="session")
def now() -> digests.Digests:
    """Take all digests, which is half a minute's work."""
    return digests.digests()


def test_nothing_differs(now):
    """Templates, manifests, plans, findings, help texts and schemas, of every cluster."""
    assert digests.difference(digests.committed(), now) == [], HOW


def test_every_cluster_and_command_is_in_it():
    """A stack, chart or command that is left out would be free to change."""
    names = digests.committed()
    for cluster in emitted.CLUSTERS:
        assert f"templates/{cluster}/Storage" in names
        assert f"manifests/{cluster}/platform/20-storage" in names
    for cluster in emitted.WITH_FILES:
        assert {f"plan/{cluster}", f"validate/{cluster}"} <= set(names)
    assert {"help/meks", "help/meks validate", "schema/cluster", "schema/status"} <= set(names)


def test_what_differs_is_named():
    """By cluster and file, whichever way it differs."""
    before = {"templates/g5/Storage": "1", "plan/g5": "1", "help/meks": "1"}
    now = {"templates/g5/Storage": "2", "help/meks": "1", "help/meks new": "1"}
    assert digests.difference(before, now) == [
        "new: help/meks new",
        "gone: plan/g5",
        "changed: templates/g5/Storage",
    ]


def test_a_program_in_an_image_does_not_count():
    """Another tag, which is a hash of the programs, is the same text."""
    made = emitted.emitted(emitted.DEFAULT)
    images = made.project.cluster.images
    text = made.manifests["jobs/megatron-cpt-techpulse"]
    later = [replace(each, tag=each.tag[::-1]) for each in images]
    changed = text
    for one, other in zip(images, later, strict=True):
        changed = changed.replace(one.tag, other.tag)
    assert changed != text
    assert digests.without_tags(changed, later) == digests.without_tags(text, images)


def test_a_finding_counts_by_code_place_and_level():
    """Not by its sentence, and not by the order in which it is told."""
    one = {"file": "cluster.yaml", "path": "name", "code": "MEKS-0101", "level": "error"}
    other = {**one, "level": "warning"}
    assert digests.places([{**one, "found": "a"}, other]) == digests.places([other, one])
    assert json.loads(digests.places([one])) != json.loads(digests.places([other]))
