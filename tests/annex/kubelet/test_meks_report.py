"""`meks report` of a run that really starts three times: while it runs, ended, and gone."""

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.jobs import report, report_page
from megatron_eks.ops.kube import jobs as running
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from megatron_eks.project import ROOT, load_project
from tests.annex import jobs
from tests.annex.kubelet.test_ended_jobs import Shared, shipped
from tests.annex.kubelet.test_meks_status import WORDS
from tests.consoles import console

pytestmark = pytest.mark.control_plane

NAME = "megatron-cpt-techpulse"
# Out of memory, then killed as the kernel does it, then it runs until it is told to end.
SCRIPT = """
folder=/shared/logs/reported; mkdir -p $folder
if [ ! -e $folder/1 ]; then
  touch $folder/1; for i in 1 2 3 4; do line $i; done; saved 4; line 5; line 6
  echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.'; exit 1
fi
if [ ! -e $folder/2 ]; then
  touch $folder/2; loaded 4; for i in 5 6 7; do line $i; done; saved 7
  sh -c 'kill -9 $PPID'; sleep 9
fi
loaded 7; for i in 8 9; do line $i; done; until [ -e $folder/end ]; do sleep 0.2; done
line 10; saved 10; echo '[after training is done] datetime: 2026-11-20 11:00:00'
"""


@pytest.fixture(scope="module")
def run(cluster):
    """Submit the job, and return it."""
    *beside, job = shipped(NAME)
    job["spec"]["runPolicy"]["backoffLimit"] = 9
    for _, pod in running.pod_specs(job):
        (container,) = pod["containers"]
        container["command"][-1] = WORDS + SCRIPT
    made = [cluster.client.apply(each) for each in (*beside, job)][-1]
    yield made
    jobs.delete(cluster.client, made)


@pytest.fixture
def told(cluster):
    """Return a function that gives what the report tells by now, and its page."""
    project = load_project(ROOT / "cluster.yaml", datetime.now(tz=UTC).date())
    plans = tuple(replace(x, nodes=1) if x.name == NAME else x for x in project.jobs)
    access = Access(cluster.client, is_local=True)
    on = Opened(access, replace(project, jobs=plans), console())

    def call():
        found = report.read(Shared(cluster), NAME, on)
        return found, re.sub(r"<[^>]*>", " ", report_page.page(found))

    return call


def test_two_restarts_and_an_end(cluster, run, told):
    """What each start reached and why it ended; later from the record alone."""

    def third():
        found, page = told()
        return (found, page) if len(found.starts) == 3 and found.starts[2].reached == 9 else None

    found, page = wait_for("the third start", third, 240)
    rows = [(x.went_on, x.reached, x.counted, x.lost) for x in found.starts]
    assert rows == [(0, 6, 4, 2), (4, 7, 3, 0), (7, 9, 2, 0)]
    assert [x.code for x in found.starts] == ["MEKS-0901", "", ""]
    assert found.starts[1].cause == "rank 0 was ended by signal 9"
    assert 0 < found.useful < 1
    assert found.spending.usd_so_far > 0
    for said in (
        "Running",
        "It runs; nothing has ended it.",
        # Starts are counted by the folder of records, which other tests may have used before.
        f"{found.starts[0].number}: step 6, A GPU ran out of memory. [MEKS-0901]",
        "2 steps lost",
        "nobody is billed",
        "9 of 100",
    ):
        assert said in page, said

    (cluster.shared() / "logs" / "reported" / "end").touch()
    jobs.wait_for_condition(cluster.client, run, "Succeeded")
    found, page = told()
    assert ("Succeeded" in page, found.starts[-1].cause, found.starts[-1].reached) == (True, "", 10)

    jobs.delete(cluster.client, run)
    found, page = told()
    assert [x.reached for x in found.starts] == [6, 7, 10]
    assert "The run ended well." in page
