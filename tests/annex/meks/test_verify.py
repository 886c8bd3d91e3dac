"""`meks verify` on a real API server whose nodes play their pods: waiting, and finding again."""

import json
from dataclasses import replace

import pytest

from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import checklist, verify
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from tests import schemas
from tests.annex import jobs

pytestmark = pytest.mark.control_plane


@pytest.fixture
def on(client, loaded, emitted, console):
    """Open the shared cluster, whose manifests are beside its file."""
    assert emitted == loaded.file.with_name("dist")
    return Opened(Access(client, is_local=True), loaded, console)


def options(**wanted):
    """Return what a user asks for, with short waits."""
    return {"previews": True, "wait_seconds": 2} | wanted


def test_a_check_that_does_not_end_is_no_result(client, on, console):
    """A pod that is played runs for ever; the second command finds it running."""
    wanted = options(checks=("all-reduce",))
    try:
        assert verify.run("json", on, **wanted) == 4
        assert verify.run("table", on, **wanted) == 4
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


def test_a_pool_of_nobody_and_a_folder_without_checks_are_not_found(on, tmp_path):
    """Before anything is started."""
    elsewhere = on._replace(project=replace(on.project, file=tmp_path / "cluster.yaml"))
    for wanted, where in ((options(pools=("p5",)), on), (options(), elsewhere)):
        with pytest.raises(Failure) as caught:
            verify.run("table", where, **wanted)
        assert caught.value.code == 3


def test_placeholders_are_refused(on):
    """Their images do not exist, and a check would wait for them."""
    with pytest.raises(Failure, match="MEKS-0725"):
        verify.run("table", on, **options(previews=False, checks=("storage",)))


def test_checks_of_another_cluster_are_refused(on):
    """They would mount its file system."""
    other = replace(on.project, cluster=replace(on.plan, name="other"))
    with pytest.raises(Failure, match="MEKS-0724 the manifests are of cluster 'techpulse'"):
        verify.run("table", on._replace(project=other), **options(checks=("storage",)))


def test_the_checklist_of_a_job_is_read_from_the_cluster(client, plan, submit, console):
    """Without a log it says what cannot be known, and judges what can."""
    job = jobs.training_job("listed")
    submit(job)
    jobs.wait_for_pods(client, job, 2, "Running")
    checklist.run(client, plan, "listed", "json", console)
    shown = schemas.read("preflight", console.stdout.getvalue())
    verdicts = {each["name"]: each["verdict"] for each in shown["checks"]}
    assert shown["job"] == "listed"
    assert verdicts["all ranks run"] == "passed"
    assert verdicts["loss falls"] == "not checked"


def test_a_job_that_nobody_started_is_not_found(client, plan, console):
    """With the names of those that there are."""
    with pytest.raises(Failure) as caught:
        checklist.run(client, plan, "nobody", "table", console)
    assert caught.value.code == 3
