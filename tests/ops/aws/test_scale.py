"""`meks scale` takes nodes until their GPUs can be used, gives them back, and says why not."""

from datetime import UTC, datetime, timedelta

import pytest
from botocore.stub import Stubber

from megatron_eks.config.errors import ConfigError
from megatron_eks.ops.cluster import scale
from megatron_eks.ops.failure import Failure
from tests.ops.aws.fakes import TODAY, clock_of, console, project_in, said, tools
from tests.ops.aws.scaling import SCALED, Place


@pytest.fixture
def place(tmp_path, aws, scaled):
    """Return a pool without nodes."""
    return Place(tmp_path, aws, scaled)


def test_nodes_are_waited_for_until_their_gpus_can_be_used(place):
    """A node is Ready before its device plugin has told of a GPU."""
    steps = {
        2: lambda: place.nodes(1, gpus="0"),
        4: lambda: place.nodes(2, gpus="8", efa="0"),
        6: lambda: place.nodes(2),
    }
    clock_of(place.console).during = lambda count: steps.get(count, lambda: None)()
    assert place.run(2) == 0
    assert place.wanted() == 2
    assert said(place.console).splitlines() == [
        "p4d: 2 x p4d.24xlarge in us-east-2b, 43.92 USD an hour",
        "  0 s: 2 of 2 instances, 0 with usable GPUs",
        # After pauses of 0.5, 0.8, 1.1, 1.7, 2.5 and 3.8 s.
        "  10 s: 2 of 2 instances, 2 with usable GPUs",
        "p4d is ready: 2 nodes",
    ]


def test_more_than_the_file_allows_is_refused(place):
    """EKS would take it: its ceiling is a constant."""
    with pytest.raises(Failure) as caught:
        place.run(3)
    assert caught.value.code == 2
    assert str(caught.value) == (
        "MEKS-0756 3 nodes, and the cluster file allows p4d 2 - use 0 to 2, or raise gpu_pools "
        "max_nodes"
    )


def test_a_pool_that_jobs_scale_is_refused(place):
    """What it takes would go as idle, and what it gives back may hold a job."""
    queue = SCALED.replace("    max_nodes: 2", "    max_nodes: 2\n    scale: queue")
    file = project_in(place.folder, f"{queue}\nplatform: {{kueue: true}}\n")
    found = tools(file, place.aws, place.console)
    with pytest.raises(Failure, match="MEKS-0595 p4d: jobs in queues bring the nodes") as caught:
        scale.run(scale.Wish("p4d", 1), found, lambda: place.kubernetes)
    assert (caught.value.code, place.wanted()) == (2, 0)


def test_a_pool_that_nobody_deployed_is_not_found(place):
    """3 is not found, and the next command is named."""
    file = project_in(place.folder, SCALED.replace("name: p4d", "name: p5"))
    found = tools(file, place.aws, place.console)
    with pytest.raises(Failure, match="no node group p5 - run: meks deploy") as caught:
        scale.run(scale.Wish("p5", 1), found, lambda: place.kubernetes)
    assert caught.value.code == 3


def test_nodes_that_do_not_come_are_given_back(place):
    """Half a gang trains nothing, and costs as much."""
    clock_of(place.console).during = lambda _: place.nodes(1)
    with pytest.raises(Failure) as caught:
        place.run(2, minutes=5)
    assert caught.value.finding == "MEKS-0755"
    assert str(caught.value).startswith(
        "MEKS-0755 p4d: after 5 minutes 2 of 2 instances, 1 with usable GPUs - "
    )
    assert place.wanted() == 0
    assert "p4d is back at 0 nodes" in said(place.console)


def test_what_somebody_else_asks_for_meanwhile_is_theirs(place):
    """The wait ends, and their nodes are not given back with those that did not come."""
    clock_of(place.console).during = lambda _: place.size(1)
    with pytest.raises(Failure, match="p4d: another user has scaled it to 1 node"):
        place.run(2)
    assert place.wanted() == 1


def failing(place, message):
    """Let Auto Scaling say why a launch failed."""
    stub = Stubber(place.aws.client("autoscaling"))
    activity = {
        "ActivityId": "1",
        "AutoScalingGroupName": "a",
        "Cause": "an instance was started",
        "StartTime": datetime(2026, 11, 21, 12, 0, 1, tzinfo=UTC),
        "StatusCode": "Failed",
        "StatusMessage": message,
    }
    for _ in range(300):
        stub.add_response("describe_scaling_activities", {"Activities": [activity]})
    stub.activate()


def test_a_quota_that_is_too_small_ends_it_at_once(place):
    """Waiting helps nobody; the quota, its code and the number to ask for are named."""
    failing(place, "VcpuLimitExceeded: You have requested more vCPU capacity than your limit")
    with pytest.raises(Failure) as caught:
        place.run(2)
    assert str(caught.value) == (
        "MEKS-0755 p4d: the account's quota is too small for 2 x p4d.24xlarge, 192 vCPUs - ask for "
        "192 or more of 'Running On-Demand P instances': aws service-quotas "
        "request-service-quota-increase --service-code ec2 --quota-code L-417A185B "
        "--desired-value 192"
    )
    assert place.wanted() == 0


def test_missing_capacity_is_told_once_and_waited_for(place):
    """EC2 may have some in ten minutes."""
    failing(place, "We currently do not have sufficient p4d.24xlarge capacity in us-east-2b")
    steps = {20: lambda: place.nodes(2)}
    clock_of(place.console).during = lambda count: steps.get(count, lambda: None)()
    assert place.run(2) == 0
    assert said(place.console).count("EC2 has no free p4d.24xlarge in us-east-2b now") == 1


def test_an_older_failure_says_nothing_of_this_try(place):
    """What failed yesterday may work today."""
    failing(place, "VcpuLimitExceeded")
    clock_of(place.console).time = TODAY + timedelta(hours=1)
    place.nodes(2)
    assert place.run(2) == 0


def test_nodes_go_when_the_last_job_has_ended(place):
    """Nobody needs to sit beside it."""
    place.size(2)
    place.pods("train-master-0", "train-worker-0")
    steps = {3: lambda: place.pods("train-master-0"), 5: place.pods}
    clock_of(place.console).during = lambda count: steps.get(count, lambda: None)()
    assert place.run(0, when_idle=True) == 0
    assert place.wanted() == 0
    text = said(place.console)
    assert "p4d is in use by 2 pods: train-master-0, train-worker-0; waiting for that\n" in text
    assert "p4d is in use by 1 pod: train-master-0; waiting for that\n" in text
    assert text.endswith("p4d has 0 nodes\n")


def test_ctrl_c_before_aws_was_asked_says_so(place):
    """The nodes stay, and the same command waits on."""
    place.size(2)
    place.pods("train-master-0")

    def interrupted(_):
        raise KeyboardInterrupt

    clock_of(place.console).during = interrupted
    assert place.run(0, when_idle=True) == 130
    again = "AWS was asked for nothing yet; to go on: meks scale p4d 0 --when-idle\n"
    assert said(place.console).endswith(again)


def test_running_jobs_are_asked_about(place):
    """The answer no leaves them alone; a pod that is ending has nothing left to lose."""
    place.size(2)
    place.pods("train-master-0", "failed-master-0")
    place.kubernetes.objects["Pod"][1]["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:00Z"
    place.console = console("n\n")
    assert place.run(0) == 1
    assert place.wanted() == 2
    text = said(place.console)
    assert "on p4d: 1 pod of jobs (train-master-0)" in text
    assert text.endswith("nothing was changed; meks scale p4d 0 --when-idle\n")


@pytest.mark.parametrize("wanted", [0, 2])
def test_ctrl_c_while_nodes_come_says_what_runs_and_a_second_run_waits_on(place, wanted):
    """Whether this run asked for them or an earlier one: they are billed."""
    place.size(wanted)
    clock = clock_of(place.console)

    def interrupted(_):
        raise KeyboardInterrupt

    clock.during = interrupted
    assert place.run(2) == 130
    assert said(place.console).endswith(
        "AWS goes on taking nodes; to wait again: meks scale p4d 2; to give them back: meks scale "
        "p4d 0\n"
    )
    assert place.wanted() == 2
    place.nodes(2)
    clock.during = lambda _: None
    assert place.run(2) == 0


def test_an_api_server_out_of_reach_keeps_no_nodes_running(place):
    """They cost money whether anybody sees them or not."""
    place.size(2)

    def nobody():
        message = "no route"
        raise ConnectionError(message)

    found = tools(project_in(place.folder, SCALED), place.aws, place.console)
    assert scale.run(scale.Wish("p4d", 0), found, nobody) == 0
    assert place.wanted() == 0
    assert "jobs on p4d cannot be seen: no route" in said(place.console)


def test_an_api_server_out_of_reach_takes_no_nodes(place):
    """Before anything is paid for."""

    def nobody():
        message = "no route"
        raise ConnectionError(message)

    found = tools(project_in(place.folder, SCALED), place.aws, place.console)
    with pytest.raises(ConnectionError):
        scale.run(scale.Wish("p4d", 2), found, nobody)
    assert place.wanted() == 0


def test_an_outdated_file_gives_nodes_back_and_takes_none(place):
    """What nodes would start with is wrong; what nodes cost goes on until they are given back."""
    outdated = SCALED.replace('"1.36"', '"1.35"')
    with pytest.raises(ConfigError, match="MEKS-0218"):
        place.run(1, text=outdated)
    assert place.wanted() == 0
    place.size(2)
    assert place.run(0, text=outdated) == 0
    assert place.wanted() == 0
