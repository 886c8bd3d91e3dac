"""`meks verify` on nodes that run its pods: the programs, their logs, and what is made of them."""

import pytest

from megatron_eks.ops.jobs import verify
from megatron_eks.ops.kube import jobs as running
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from tests import schemas
from tests.annex import jobs
from tests.consoles import console, said, written

pytestmark = pytest.mark.control_plane

_NAMESPACE = "megatron-workshop"


@pytest.fixture
def checked(cluster, emitted, loaded):
    """Return a function that runs checks and gives exit code, report and what was said."""
    assert emitted == loaded.file.with_name("dist")
    made: set[str] = set()

    def call(*checks, seconds=240.0):
        told = console(yes=True)
        made.update(f"{check}-p4d" for check in checks)
        on = Opened(Access(cluster.client, is_local=True), loaded, told)
        code = verify.run("json", on, checks=checks, previews=True, wait_seconds=seconds)
        report = schemas.read("preflight", written(told))
        return code, {each["name"]: each for each in report["checks"]}, said(told)

    yield call
    for name in made:
        found = running.find(cluster.client, _NAMESPACE, name)
        if found is not None:
            version = found.workload.api_version
            jobs.delete(cluster.client, {**found.manifest, "apiVersion": version})


def test_checks_run_to_their_end_and_what_is_not_proven_fails(checked):
    """The first succeeds without a result, the image has no program for the second."""
    code, report, said = checked("nvidia-smi", "efa-check")
    assert code == 4
    (finding,) = report["nvidia-smi-p4d"]["findings"]
    assert finding["code"] == "MEKS-0862"
    assert finding["found"] == "it succeeded, and its log holds no result"
    (finding,) = report["efa-check-p4d"]["findings"]
    assert finding["code"] == "MEKS-0861"
    assert "backoff limit" in finding["found"]
    assert "efa-check-p4d: failed" in said


def test_a_check_that_has_ended_runs_again(checked, cluster):
    """Its Job makes room for another one."""
    checked("nvidia-smi")
    first = running.get(cluster.client, _NAMESPACE, "nvidia-smi-p4d").uid
    checked("nvidia-smi")
    assert running.get(cluster.client, _NAMESPACE, "nvidia-smi-p4d").uid != first
