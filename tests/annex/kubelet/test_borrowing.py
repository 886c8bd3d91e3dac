"""Two teams on process nodes: what one leaves idle the other borrows, and gives back."""

from dataclasses import replace

import cdk8s
import pytest

from charts.platform.kueue_queues import KueueQueues
from megatron_eks.catalog import kueue as names
from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.ops.jobs import expected
from megatron_eks.ops.kube import jobs as live
from megatron_eks.plan.cluster.platform import TRAINING_PRIORITY
from megatron_eks.plan.cluster.queues import queue_labels
from tests.annex import jobs
from tests.annex.kubelet import runs
from tests.charts import rendered

pytestmark = [pytest.mark.control_plane, pytest.mark.long]


@pytest.fixture(scope="module")
def _queues(kueue) -> None:
    """Give each of two teams one node of two; both have the namespace whose volumes are there."""
    plan = rendered.other_platform(kueue=True)
    teams = tuple(
        replace(plan.teams[0], name=name, gpus=8, may_borrow=True) for name in ("nlp", "vision")
    )
    # A cohort of their own, whatever else waits in the cluster.
    plan = replace(plan, name="borrowing", teams=teams)
    for each in cdk8s.Testing.synth(KueueQueues(cdk8s.App(), "queues", plan=plan)):
        kueue.apply(each)


def _job(name: str, team: str, nodes: int) -> Object:
    found = runs.job(name, nodes, image=runs.SMALL)
    found["metadata"]["labels"] |= queue_labels(team, TRAINING_PRIORITY)
    return found


@pytest.mark.usefixtures("_queues")
def test_what_is_lent_comes_back(cluster, start):
    """At once, though its classes are alike; who borrowed goes on from its last step later."""
    borrower = _job("borrows", "vision", 2)
    borrows = start(borrower)
    borrows.wait_for_step(after=5)
    owner = _job("owns", "nlp", 1)
    owns = start(owner)
    owns.wait_for_step()
    wait_for("its nodes", lambda: not jobs.pods_of(cluster.client, borrower))
    reached = borrows.steps()[-1]["step"]
    (workload,) = (
        each
        for each in cluster.client.list(names.API_VERSION, "Workload", "megatron-workshop")
        if each["metadata"]["ownerReferences"][0]["name"] == "borrows"
    )
    conditions = {each["type"]: each for each in workload["status"]["conditions"]}
    assert conditions["Preempted"]["reason"] == "InCohortReclamation"
    waits = live.get(cluster.client, "megatron-workshop", "borrows")
    assert expected.why(cluster.client, (), waits) == (
        "it takes 16 GPUs, and 8 of 16 of pool p4d are idle until owns ends; "
        "when it starts is not known: nothing predicts the end of owns"
    )
    owns.finish()
    jobs.wait_for_condition(cluster.client, owner, "Succeeded")
    assert borrows.wait_for_restart()["start"] == reached
    borrows.finish()
    jobs.wait_for_condition(cluster.client, borrower, "Succeeded")
