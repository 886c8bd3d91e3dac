"""Why nodes do not come, whoever says it."""

import pytest

from megatron_eks.ops.aws.capacity import explain
from tests.ops.aws.fakes import Clients, console, project_in, tools


@pytest.mark.parametrize(
    ("message", "found", "waiting"),
    [
        ("MaxSpotInstanceCountExceeded", "the account's quota is too small", False),
        ("There is no Spot capacity available", "EC2 has no free p4d.24xlarge", True),
        ("ReservationCapacityExceeded: none left", "the reservation None has no room", False),
        ("InsufficientFreeAddressesInSubnet", "the subnet in us-east-2b has no free", False),
        ("NodeCreationFailure: Instances failed to join", "nodes started and did not join", False),
        ("You are not authorized to use launch template", "AWS may not start instances", False),
        ("Something new {with braces}", "Something new {with braces}", True),
    ],
)
def test_reasons_are_put_in_plain_words(tmp_path, message, found, waiting):
    """Of EC2, Auto Scaling and EKS alike."""
    plan = tools(project_in(tmp_path), Clients(), console()).plan
    reason = explain(message, plan.pool("p4d"), 2)
    assert reason.found.startswith(found)
    assert reason.waiting_helps is waiting
