"""Whether the nodes of a pool can be had: zones, reservations, Capacity Blocks."""

from datetime import timedelta

import pytest

from tests.ops.aws.preflight.subjects import NOW, changed, project, told

NUMBER = "cr-0123456789abcdef0"
_ZONES = "zones offer the types"
_RESERVED = "reservations and Capacity Blocks"


@pytest.fixture
def reserved(tmp_path):
    """Return a project whose pool takes a reservation."""
    return project(tmp_path, changed(capacity={"type": "reservation", "id": NUMBER}))


@pytest.fixture
def block(tmp_path):
    """Return a project whose pool takes a Capacity Block that ends in ten days."""
    ends = f"{NOW + timedelta(days=10):%Y-%m-%dT%H:%M:%SZ}"
    capacity = {"type": "capacity_block", "id": NUMBER, "ends_at": ends}
    return project(tmp_path, changed(capacity=capacity))


def reservation(**values):
    """Return EC2's answer about a reservation that fits the pool, but for what is given."""
    fitting = {
        "State": "active",
        "InstanceType": "p4d.24xlarge",
        "AvailabilityZone": "us-east-2b",
        "TotalInstanceCount": 2,
        "StartDate": NOW - timedelta(days=1),
    }
    return {"describe_capacity_reservations": {"CapacityReservations": [fitting | values]}}


def test_a_zone_without_the_type_names_those_with_it(tmp_path):
    """The most useful remedy is the zone to write."""
    zones = [{"InstanceType": "p4d.24xlarge", "Location": f"us-east-2{zone}"} for zone in "ac"]
    offered = {"InstanceTypeOfferings": zones}
    assert told(project(tmp_path), describe_instance_type_offerings=offered)[_ZONES] == [
        "error MEKS-0825 us-east-2b does not offer p4d.24xlarge - use us-east-2a or us-east-2c"
    ]


def test_a_region_without_the_type_says_so(tmp_path):
    """No zone would help."""
    none: dict[str, list[str]] = {"InstanceTypeOfferings": []}
    nowhere = told(project(tmp_path), describe_instance_type_offerings=none)
    (line,) = nowhere[_ZONES]
    assert line.startswith("error MEKS-0825 no zone of us-east-2 offers p4d.24xlarge - take")


def test_a_reservation_that_fits_is_no_finding(reserved):
    """State, type, zone and count are those of the pool."""
    assert told(reserved, **reservation()) == {}


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"State": "expired"}, f"{NUMBER} is expired - name another reservation"),
        (
            {"InstanceType": "p5.48xlarge"},
            f"{NUMBER} is for p5.48xlarge, and the pool for p4d.24xlarge - make both the same",
        ),
        (
            {"AvailabilityZone": "us-east-2a"},
            (
                f"{NUMBER} is in us-east-2a, and the pool in us-east-2b - write availability_zone: "
                "us-east-2a"
            ),
        ),
        (
            {"TotalInstanceCount": 1},
            f"{NUMBER} has 1 instances, and the pool takes up to 2 - write max_nodes: 1",
        ),
    ],
)
def test_a_reservation_that_does_not_fit_says_in_what(reserved, values, line):
    """Each difference is a launch that fails."""
    assert told(reserved, **reservation(**values))[_RESERVED] == [f"error MEKS-0826 {line}"]


def test_a_reservation_of_nobody_is_an_error(reserved):
    """A mistyped identifier, or another account's."""
    nobody_s = told(reserved, describe_capacity_reservations={"CapacityReservations": []})
    (line,) = nobody_s[_RESERVED]
    assert line.startswith(f"error MEKS-0826 this account has no reservation {NUMBER} in us-east-2")


def test_a_block_to_come_names_the_command_that_waits(block):
    """Before its start every launch fails."""
    starts, ends = NOW + timedelta(days=2), NOW + timedelta(days=10)
    found = reservation(State="scheduled", StartDate=starts, EndDate=ends)
    assert told(block, **found)[_RESERVED] == [
        (
            f"warning MEKS-0827 {NUMBER} starts at 2026-11-24 12:00 UTC - wait for it: meks scale "
            "p4d "
            "2 --at start"
        )
    ]


def test_the_end_in_the_file_is_that_of_the_block(block):
    """Plans and checkpoints are timed by it."""
    found = reservation(EndDate=NOW + timedelta(days=9))
    assert told(block, **found)[_RESERVED] == [
        (
            "error MEKS-0827 the file says it ends at 2026-12-02 12:00 UTC, EC2 says 2026-12-01 "
            "12:00 "
            "UTC - write ends_at: 2026-12-01T12:00:00Z"
        )
    ]


@pytest.mark.parametrize(
    ("left", "level", "text"),
    [
        (timedelta(hours=3), "warning", f"nodes of {NUMBER} go in 2 h 20 min"),
        (timedelta(minutes=39), "error", f"{NUMBER} ends at 2026-11-22 12:39 UTC, and takes no"),
    ],
)
def test_a_block_near_its_end_says_how_long_nodes_stay(tmp_path, left, level, text):
    """EKS takes them away forty minutes before it."""
    ends = NOW + left
    capacity = {
        "type": "capacity_block",
        "id": NUMBER,
        "ends_at": f"{ends:%Y-%m-%dT%H:%M:%SZ}",
    }
    found = project(tmp_path, changed(capacity=capacity))
    (line,) = told(found, **reservation(EndDate=ends))[_RESERVED]
    assert line.startswith(f"{level} MEKS-0827 {text}")
