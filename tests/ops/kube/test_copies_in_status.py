"""What `meks status` says of a run's copies in S3: while it runs, as it waits, and at the end."""

from datetime import timedelta

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.ops.failure import CHECK_FAILED, DONE
from megatron_eks.ops.jobs import alarms, pace, status_view
from megatron_eks.ops.jobs.status import State
from tests.charts import rendered
from tests.consoles import console
from tests.ops.kube import looks
from tests.ops.kube.looks import NOW, line, stamp

URI = "s3://b/run"
DENIED = "S3 refuses: AccessDenied - give the role the right to do this"
LEFT = "the last checkpoint is in /shared/c alone: no such bucket - meks ckpt push JOB sends it"


def told(state, text, *, ago=60):
    """Return what a run's first rank printed so long ago."""
    return f"{stamp(NOW - timedelta(seconds=ago))} copies to {URI}: {state}: {text}"


def seen(*lines, ended="", words=""):
    """Return the state of a job that printed some lines after its last step."""
    conditions = [{"type": ended, "status": "True"}] if ended else []
    job = looks.running_job()
    job.manifest["status"] = {"conditions": conditions}
    pod = looks.pod(0)
    if words:
        pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"message": words}}
    found = looks.look(
        [line(10_000, NOW - timedelta(seconds=90)), *lines], job=job, pods=[pod, looks.pod(1)]
    )
    speed, newest = pace.pace(found, None), alarms.checkpoint(found)
    findings = alarms.alarms(found, rendered.cluster(), None, speed, predicted=None, newest=newest)
    return State(
        look=found,
        pace=speed,
        planned=None,
        no_plan="",
        checkpoint=newest,
        copies=alarms.copies(found),
        restarts=alarms.restarts(found),
        waits=(),
        findings=tuple(findings),
    )


@pytest.mark.parametrize(
    ("lines", "code", "text"),
    [
        ([told("whole", "up to iter_0000500")], None, ""),
        ([told("waiting", "30 s for the last checkpoint")], None, ""),
        ([told("failing", DENIED)], Code.COPIES_FAIL, "S3 refuses: AccessDenied"),
        ([told("failing", DENIED), told("whole", "up to iter_0000500")], None, ""),
        ([told("missing", LEFT)], Code.COPIES_MISSING, "finished, copies missing"),
    ],
)
def test_the_newest_line_counts(lines, code, text):
    """A trouble is a warning for as long as it lasts."""
    state = seen(*lines)
    found = [each for each in state.findings if "COPIES" in each.code.name]
    assert [each.code for each in found] == ([code] if code else [])
    assert all(text in each.found for each in found)


def test_a_run_that_waits_at_its_end_says_so():
    """Instead of silence after the last step, though GPUs do nothing."""
    state = seen(told("waiting", "30 s for the last checkpoint"))
    shown = "copies      waiting: 30 s for the last checkpoint (s3://b/run, 60 s ago)"
    assert shown in [*status_view.head(state)]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([told("missing", LEFT)], ""),
        # A log that is cut short, or was turned over since.
        ([told("waiting", "30 s for the last checkpoint")], ""),
        ([], f"copies to {URI}: missing: {LEFT}\n"),
    ],
)
def test_a_job_without_its_copies_is_no_plain_success(lines, words):
    """The job succeeded; the command says what is missing, what to do, and ends with 4."""
    state = seen(*lines, ended="Succeeded", words=words)
    (found,) = state.findings
    assert found.code is Code.COPIES_MISSING
    assert found.found.startswith("finished, copies missing in s3://b/run: ")
    assert found.remedy == "meks ckpt push train"
    assert status_view.show(state, "json", console()) == CHECK_FAILED
    copies = status_view.as_json(state)["copies"]
    assert isinstance(copies, dict)
    assert copies["uri"] == URI


def test_a_job_whose_copies_are_whole_is_one():
    """Nothing is said, and the exit code is 0."""
    state = seen(told("whole", "all that was saved last is there"), ended="Succeeded")
    assert state.findings == ()
    assert status_view.show(state, "json", console()) == DONE


def test_a_failed_job_is_told_by_its_failure():
    """What its copies were like then is a warning beside it."""
    state = seen(told("failing", DENIED), ended="Failed")
    assert [each.code for each in state.findings] == [Code.COPIES_FAIL]
    assert status_view.show(state, "json", console()) == DONE
