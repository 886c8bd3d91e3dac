"""Speed beside the plan, the time that is left, runs that stand still, and what is due."""

from dataclasses import replace
from datetime import timedelta

import pytest

from megatron_eks.ops.jobs import alarms, pace
from megatron_eks.ops.output import step_time
from tests.charts import rendered
from tests.ops.kube import looks
from tests.ops.kube.looks import BEGUN, NOW, line, look, saved


@pytest.fixture(scope="module")
def plan():
    """Return the plan of the default job."""
    return replace(rendered.training_job(), name="train", args=("--seq-length", "4096"))


def logged(count, *, ago, gap=400.0, **fields):
    """Return so many lines a gap apart, of which the last was printed so long ago."""
    last = NOW - timedelta(seconds=ago)
    return [
        line(10 * number, last - timedelta(seconds=gap * (count - number)), **fields)
        for number in range(1, count + 1)
    ]


def prediction(plan):
    """Return what is predicted of the default job."""
    found = pace.planned(plan)
    assert found is not None
    return found


def found_by(alarm_of, plan, **changes):
    """Return codes and texts of what is found in a look."""
    cluster = changes.pop("cluster", rendered.cluster())
    speed, predicted = pace.pace(alarm_of, plan), prediction(plan)
    newest = alarms.checkpoint(alarm_of)
    some = alarms.alarms(alarm_of, cluster, plan, speed, predicted=predicted, newest=newest)
    return {str(each.code): f"{each.found} - {each.remedy}" for each in some}


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.234, "1.23 s"), (40, "40 s"), (999.7, "1,000 s"), (1234.4, "1,234 s")]
)
def test_what_a_step_takes_is_no_power_of_ten(seconds, text):
    """Long steps have all of their digits."""
    assert step_time(seconds) == text


def test_a_run_beside_its_plan(plan):
    """Medians of the newest lines without the first; MFU by the peak that the plan counts with."""
    steps = logged(12, ago=30)
    steps[0] = steps[0].replace("40000.0", "900000.0")
    found, predicted = pace.pace(look(steps), plan), prediction(plan)
    assert found.step_seconds == 40
    assert found.tokens_per_second == pytest.approx(512 * 4096 / 40)
    assert found.mfu == pytest.approx(130 * predicted.mfu / predicted.tflops_per_gpu)
    assert predicted.mfu_low < predicted.mfu < predicted.mfu_high
    assert (found.line_seconds, found.silent_seconds) == (400, 30)
    assert found.seconds_left is not None
    assert found.seconds_left == pytest.approx((10_000 - 120) * 40)
    assert found.ends_at == NOW + timedelta(seconds=found.seconds_left)
    assert pace.same_batch(found, predicted)


def test_what_lies_between_steps_takes_time_too(plan):
    """Saving and validation stand between the lines and in none of them."""
    found = pace.pace(look(logged(12, ago=0, gap=500)), plan)
    assert found.step_seconds == 40
    assert found.seconds_left == pytest.approx(9880 * 50)


def test_ranks_on_cpus_have_no_mfu(plan):
    """And are not slower than the plan of GPUs."""
    slow = look(logged(12, ago=30, tflops=0.004))
    assert pace.pace(slow, plan).mfu is None
    assert "MEKS-0763" not in found_by(slow, plan)


def test_mfu_from_tokens_where_the_log_has_no_throughput(plan):
    """By the plan's own ratio."""
    steps = [each.replace("throughput", "x") for each in logged(3, ago=1)]
    found, predicted = pace.pace(look(steps), plan), prediction(plan)
    assert found.tflops_per_gpu is None
    share = 512 * 4096 / 40 / predicted.tokens_per_second
    assert found.mfu == pytest.approx(share * predicted.mfu)


def test_another_batch_than_the_files(plan):
    """Its plan says nothing of it."""
    steps = [each.replace("size:   512", "size:   256") for each in logged(3, ago=1)]
    assert not pace.same_batch(pace.pace(look(steps), plan), prediction(plan))


def test_the_plan_of_a_job_is_of_its_values(plan):
    """Another number of nodes or another argument is another run."""
    assert pace.plan_of([plan], looks.running_job()) == (plan, "")
    for other in (looks.running_job(ranks=3), looks.running_job(args=["--seq-length", "8192"])):
        found, why = pace.plan_of([plan], other)
        assert found is None
        assert why == "train was submitted with other values than its file has now"
    assert pace.plan_of([plan], looks.running_job("train-2")) == (
        None,
        "no job file has the name train-2",
    )


def test_a_run_that_stands_still(plan):
    """Ten times the usual silence; not one that saves, and not one that has reached its end."""
    short = logged(5, ago=14 * 60, gap=6, seconds=0.6)
    found = found_by(look(short), plan)
    assert found["MEKS-0761"] == "no step for 14 min, usual 6 s - meks logs train --explain"
    assert "MEKS-0761" not in found_by(look(logged(5, ago=3900)), plan)
    assert "MEKS-0761" in found_by(look(logged(5, ago=4100)), plan)
    assert "MEKS-0761" not in found_by(look(logged(5, ago=9000, gap=6, steps=50)), plan)


def test_a_run_that_has_no_step_yet(plan):
    """A start takes what is planned for one; with ranks missing it is no start."""
    goodput = plan.training.goodput
    begun = NOW - timedelta(seconds=2 * goodput.restart_seconds + 60)
    pods = [looks.pod(rank, begun=begun) for rank in range(2)]
    assert found_by(look([], pods=pods), plan)["MEKS-0761"].startswith("no step ")
    later = [looks.pod(0, begun=begun), looks.pod(1, begun=NOW)]
    assert found_by(look([], pods=later), plan) == {}
    assert found_by(look([], pods=pods[:1]), plan) == {}


def test_a_run_that_outlasts_its_block(plan):
    """EKS begins to take nodes 40 minutes before its end."""
    cluster = rendered.cluster()
    job = looks.running_job()
    for role in job.manifest["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["nodeSelector"] = {"megatron-eks/pool": "p4d"}
    seen = look(logged(5, ago=0), job=job)
    end = pace.pace(seen, plan).ends_at
    assert end is not None
    for margin, warned in ((39, True), (41, False)):
        capacity = replace(
            cluster.pools[0].capacity,
            kind="capacity_block",
            ends_at=end + timedelta(minutes=margin),
        )
        blocked = replace(cluster, pools=(replace(cluster.pools[0], capacity=capacity),))
        found = found_by(seen, plan, cluster=blocked)
        assert ("MEKS-0762" in found) is warned
    assert found_by(seen, plan) == {}


def test_a_slow_run(plan):
    """Below what nine of ten reach."""
    slow = look(logged(5, ago=0, gap=1200, seconds=120, tflops=40))
    text = found_by(slow, plan)["MEKS-0763"]
    assert text.startswith("MFU 12.8%, and nine of ten such runs reach 35% or more")


def test_a_checkpoint_that_is_overdue(plan):
    """Two intervals without one, where the log tells of an earlier one."""
    job = looks.running_job(args=["--seq-length", "4096", "--save-interval", "50"])
    steps = logged(12, ago=0)
    for at, warned in ((20, True), (30, False)):
        found = found_by(look([saved(at, BEGUN), *steps], job=job), plan)
        assert ("MEKS-0764" in found) is warned


def test_a_loss_that_is_no_number(plan):
    """Megatron leaves it out of its line."""
    found = found_by(look(logged(5, ago=0, loss="")), plan)
    assert found["MEKS-0765"].startswith("step 50 has no loss that is a number")
