"""`meks status` of runs that really print, die and start again."""

from dataclasses import replace

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.jobs import status, status_view
from tests import schemas
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.consoles import console, written

pytestmark = pytest.mark.control_plane


_ARGS = ["--seq-length", "4096"]

# What Megatron prints of a step, a save and a start; a step every fifth of a second.
WORDS = """
line() {
  echo " [now] iteration $1/ 100 | consumed samples: 9 | elapsed time per iteration (ms): 200.0 |"\
" throughput per GPU (TFLOP/s/GPU): 100.0 | global batch size: 512 | lm loss: 2.5E+00 |"
  sleep 0.2
}
saved() { echo "  successfully saved checkpoint from iteration $1 to /c [ t 1/1, p 1/1 ]"; }
loaded() { echo "  successfully loaded checkpoint from /c [ t 1/1, p 1/1 ] at iteration $1"; }
"""


@pytest.fixture
def printing(submit):
    """Return a function that submits a job of one rank, which runs a shell script."""

    def call(name, script):
        job = runs.job(name, 1, image=runs.SMALL)
        (container,) = jobs.pod_specs(job)[0]["containers"]
        container |= {"command": ["sh", "-ec", WORDS + script], "args": _ARGS}
        submit(job)
        return job

    return call


@pytest.fixture
def planned(loaded):
    """Return a function that gives the project a plan of such a job."""

    def call(name):
        plan = next(each for each in loaded.jobs if each.name == "megatron-cpt-techpulse")
        return replace(loaded, jobs=(replace(plan, name=name, nodes=1, args=tuple(_ARGS)),))

    return call


@pytest.fixture
def state_of(cluster):
    """Return a function that looks at a job, and gives what programs are told."""

    def call(project, name):
        told = console()
        assert status_view.show(status.read(cluster.client, project, name), "json", told) == 0
        return schemas.read("status", written(told))

    return call


def test_a_restart_and_what_it_cost(printing, planned, state_of):
    """Steps, the checkpoint, the steps done again and the share of time that counted."""
    script = """
    folder=/shared/logs/cost; mkdir -p $folder
    if [ ! -e $folder/again ]; then
      touch $folder/again
      for i in 1 2 3 4; do line $i; done; saved 4; line 5; line 6; exit 1
    fi
    loaded 4; for i in 5 6 7 8; do line $i; done; sleep 120
    """
    job = printing("cost", script)
    project = planned("cost")

    def at_eight():
        found = state_of(project, "cost")
        # The log may be ahead of what the kubelet has told of the new container.
        runs = found["phase"] == "Running" and not found["waits_for"]
        return found if runs and (found["progress"] or {}).get("step") == 8 else None

    found = wait_for("step 8", at_eight)
    limit = job["spec"]["runPolicy"]["backoffLimit"]
    assert found["restarts"] == {"gang": 1, "used": 1, "limit": limit, "lost_steps": 2}
    assert (found["checkpoint"]["iteration"], found["checkpoint"]["how"]) == (
        4,
        "its log says when it was complete",
    )
    assert 0 < found["checkpoint"]["age_seconds"] < 60
    progress, plan = found["progress"], found["plan"]
    assert progress["tokens_per_second"] == pytest.approx(512 * 4096 / 0.2)
    assert progress["mfu"] == pytest.approx(100 / plan["tflops_per_gpu"] * plan["mfu"])
    assert progress["seconds_left"] >= 92 * 0.2 - 0.01


def test_a_run_of_other_values_is_not_held_against_the_plan(printing, loaded, state_of):
    """A job of that name is in the files, and something else runs under it."""
    printing("megatron-cpt-techpulse", "line 1; sleep 60")
    found = wait_for(
        "a step",
        lambda: (state := state_of(loaded, "megatron-cpt-techpulse"))["progress"] and state,
    )
    assert found["plan"] is None
    assert found["no_plan"].endswith("was submitted with other values than its file has now")
    assert found["progress"]["mfu"] is None


def test_a_container_that_dies_at_once_is_a_crash(printing, loaded, state_of):
    """And its last words are in the logs."""
    printing("dies", "exit 3")

    def crash():
        waits = state_of(loaded, "dies")["waits_for"]
        return [each for each in waits if each["kind"] == "crash"]

    (wait,) = wait_for("the crash", crash)
    assert (wait["ranks"], wait["remedy"]) == ([0], "meks logs dies --explain")
    assert "exit code 3" in wait["why"]


def test_an_ended_job_keeps_what_it_was(cluster, printing, planned, state_of):
    """Its time ends with its container; nothing is left to wait for."""
    job = printing("ends", "for i in 98 99 100; do line $i; done; saved 100")
    jobs.wait_for_condition(cluster.client, job, "Succeeded")
    found = state_of(planned("ends"), "ends")
    assert (found["phase"], found["progress"]["step"]) == ("Succeeded", 100)
    assert found["checkpoint"]["iteration"] == 100
    assert found["findings"] == found["waits_for"] == []
