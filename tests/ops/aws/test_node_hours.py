"""When a pool's nodes came and went, on the local AWS with Auto Scaling's own words."""

from datetime import UTC, datetime, timedelta

import pytest
from botocore.stub import Stubber

from megatron_eks.ops.cluster import billing
from tests.ops.aws.fakes import console, project_in, tools
from tests.ops.aws.scaling import SCALED

NOW = datetime(2026, 11, 30, tzinfo=UTC)
SINCE = NOW - timedelta(days=30)


def activity(words, instance, begin, end, status="Successful"):
    """Return an activity between two days of November."""
    return {
        "ActivityId": f"{words}{instance}",
        "AutoScalingGroupName": "a",
        "Cause": "a user request",
        "Description": f"{words} EC2 instance: i-{instance}",
        "StartTime": datetime(2026, 11, begin, tzinfo=UTC),
        "EndTime": datetime(2026, 11, end, tzinfo=UTC),
        "StatusCode": status,
    }


@pytest.mark.usefixtures("scaled")
def test_hours_are_those_between_launch_and_end(tmp_path, aws):
    """Of one that is older: from the month's begin; a failed launch counts for nothing."""
    found = tools(project_in(tmp_path, SCALED), aws, console(yes=True))
    stub = Stubber(aws.client("autoscaling"))
    said = [
        activity("Terminating", "0a", 5, 6),
        activity("Launching a new", "0b", 10, 11),
        activity("Terminating", "0b", 19, 20),
        activity("Launching a new", "0c", 20, 21, "Failed"),
    ]
    stub.add_response("describe_scaling_activities", {"Activities": said})
    stub.activate()
    (pool,) = found.plan.pools
    hours = billing.node_hours(found.plan, pool, aws, SINCE, NOW)
    assert hours is not None
    assert hours.nodes == 2
    # The month began on 31 October.
    assert hours.hours == pytest.approx(24 * (6 + 10))
    assert hours.usd_each


@pytest.mark.usefixtures("scaled")
def test_a_pool_that_nobody_deployed_has_none(tmp_path, aws):
    """Its jobs are told of all the same."""
    file = project_in(tmp_path, SCALED.replace("name: p4d", "name: p5"))
    found = tools(file, aws, console(yes=True))
    assert billing.node_hours(found.plan, found.plan.pools[0], aws, SINCE, NOW) is None
