"""`meks verify` on a real API server whose nodes play their pods: waiting, and finding again."""

import json
from dataclasses import replace

import pytest

from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import checklist, verify
from megatron_eks.ops.kube.access import Access
from tests import schemas
from tests.annex import jobs

pytestmark = pytest.mark.control_plane


def options(emitted, **wanted):
    """Return what a user asks for, with short waits."""
    folder = emitted / "validation"
    return verify.Options(**({"folder": folder, "previews": True, "wait_seconds": 2} | wanted))


def test_a_check_that_does_not_end_is_no_result(client, loaded, emitted, console):
    """A pod that is played runs for ever; the second command finds it running."""
    access = Access(client, is_local=True)
    wanted = options(emitted, checks=("all-reduce",))
    try:
        assert verify.run(access, loaded, wanted, "json", console) == 4
        assert verify.run(access, loaded, wanted, "table", console) == 4
    finally:
        jobs.delete(
            client,
            client.get("kubeflow.org/v1", "PyTorchJob", "all-reduce-p4d", "megatron-workshop")
            | {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"},
        )
    shown, _ = json.JSONDecoder().raw_decode(console.stdout.getvalue())
    schemas.checked("preflight", shown)
    (check,) = shown["checks"]
    assert check["findings"][0]["code"] == "MEKS-0862"
    assert check["findings"][0]["found"].startswith("not at its end after 2 s")
    assert "all-reduce-p4d runs already" in console.stderr.getvalue()


def test_a_pool_of_nobody_and_a_folder_without_checks_are_not_found(
    client, loaded, emitted, console, tmp_path
):
    """Before anything is started."""
    access = Access(client, is_local=True)
    for wanted in (options(emitted, pools=("p5",)), options(emitted, folder=tmp_path)):
        with pytest.raises(Failure) as caught:
            verify.run(access, loaded, wanted, "table", console)
        assert caught.value.code == 3


def test_placeholders_are_refused(client, loaded, emitted, console):
    """Their images do not exist, and a check would wait for them."""
    wanted = options(emitted, previews=False, checks=("storage",))
    with pytest.raises(Failure) as caught:
        verify.run(Access(client, is_local=True), loaded, wanted, "table", console)
    assert "MEKS-0725" in str(caught.value)


def test_checks_of_another_cluster_are_refused(client, loaded, emitted, console):
    """They would mount its file system."""
    other = replace(loaded, cluster=replace(loaded.cluster, name="other"))
    wanted = options(emitted, checks=("storage",))
    with pytest.raises(Failure, match="MEKS-0724 the manifests are of cluster 'techpulse'"):
        verify.run(Access(client, is_local=True), other, wanted, "table", console)


def test_the_checklist_of_a_job_is_read_from_the_cluster(client, plan, submit, console):
    """Without a log it says what cannot be known, and judges what can."""
    job = jobs.training_job("listed")
    submit(job)
    jobs.wait_for_pods(client, job, 2, "Running")
    checklist.run(client, plan, "listed", "json", console)
    shown = schemas.read("preflight", console.stdout.getvalue())
    verdicts = {each["name"]: each["verdict"] for each in shown["checks"]}
    assert shown["job"] == "listed"
    assert verdicts["all ranks run"] == verdicts["shared memory"] == "passed"
    assert verdicts["loss falls"] == "not checked"


def test_a_job_that_nobody_started_is_not_found(client, plan, console):
    """With the names of those that there are."""
    with pytest.raises(Failure) as caught:
        checklist.run(client, plan, "nobody", "table", console)
    assert caught.value.code == 3
