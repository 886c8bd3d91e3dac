"""Why nodes do not come, whoever says it."""

from dataclasses import replace

import pytest

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.ops.cluster.capacity import explain
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
    assert reason.passes is waiting


@pytest.mark.parametrize("kind", sorted(INSTANCES))
@pytest.mark.parametrize("capacity", ["on_demand", "spot"])
def test_every_type_has_a_quota(tmp_path, kind, capacity):
    """However its nodes are bought."""
    plan = tools(project_in(tmp_path), Clients(), console()).plan
    pool = plan.pool("p4d")
    pool = replace(pool, instance=INSTANCES[kind], capacity=replace(pool.capacity, kind=capacity))
    reason = explain("VcpuLimitExceeded", pool, 2)
    assert f"2 x {kind}, {2 * INSTANCES[kind].vcpus} vCPUs" in reason.found
    assert ("Spot" in reason.remedy) is (capacity == "spot")
