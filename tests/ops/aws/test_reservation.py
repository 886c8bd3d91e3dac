"""Nodes at the start of a Capacity Block."""

from datetime import UTC, datetime

import pytest
from botocore.stub import Stubber

from megatron_eks.ops.failure import Failure
from tests.ops.aws.fakes import clock_of, said
from tests.ops.aws.scaling import SCALED, Place


@pytest.fixture
def place(tmp_path, aws, scaled):
    """Return a pool without nodes."""
    return Place(tmp_path, aws, scaled)


BLOCK = SCALED.replace(
    "    max_nodes: 2",
    "    max_nodes: 2\n    capacity: {type: capacity_block, id: cr-0123456789abcdef0, "
    "ends_at: 2026-12-01T11:30:00Z}",
)


def with_reservation(place, start, state="scheduled"):
    """Let EC2 know the pool's Capacity Block."""
    stub = Stubber(place.aws.client("ec2"))
    found = {
        "CapacityReservationId": "cr-0123456789abcdef0",
        "StartDate": start,
        "State": state,
    }
    stub.add_response("describe_capacity_reservations", {"CapacityReservations": [found]})
    instances = {"Reservations": [{"Instances": [{"InstanceId": "i-1"}]}]}
    for _ in range(9):
        stub.add_response("describe_instances", instances)
    stub.activate()


def test_a_capacity_block_is_not_asked_for_before_its_start(place):
    """Its launches would fail, one after another."""
    with_reservation(place, datetime(2026, 11, 22, 11, 30, tzinfo=UTC))
    with pytest.raises(Failure) as caught:
        place.run(1, text=BLOCK)
    assert str(caught.value) == (
        "MEKS-0755 cr-0123456789abcdef0 starts at 2026-11-22 11:30 UTC - add --at start, which "
        "waits for it"
    )


def test_at_start_waits_for_the_block(place):
    """To the second."""
    with_reservation(place, datetime(2026, 11, 22, 11, 30, tzinfo=UTC))
    place.nodes(1)
    assert place.run(1, text=BLOCK, at_start=True) == 0
    text = said(place.console)
    assert "waiting until 2026-11-22 11:30:00 UTC\n  23 h 30 min left\n" in text
    assert clock_of(place.console).time == datetime(2026, 11, 22, 11, 30, tzinfo=UTC)
    assert "at their own price" in text


def test_a_block_that_is_over_is_no_capacity(place):
    """Another one must be named."""
    with_reservation(place, datetime(2026, 11, 2, 11, 30, tzinfo=UTC), "expired")
    with pytest.raises(Failure, match="cr-0123456789abcdef0 is expired"):
        place.run(1, text=BLOCK)
