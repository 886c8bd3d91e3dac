"""Ranks that meet by themselves: what the operator is told, and the etcd that some meet in."""

from dataclasses import replace

import pytest

from megatron_eks.catalog import pins
from megatron_eks.plan.jobs.job import Rendezvous
from tests.charts import rendered
from tests.charts.operator_rules import refusals
from tests.charts.rendered import Manifest, jobs, only, pod, training_job
from tests.charts.validation import assert_valid

C10D = Rendezvous("c10d", 1, 4, max_restarts=3)
ETCD = Rendezvous("etcd", 2, 2, max_restarts=3)


def job_of(rendezvous: Rendezvous) -> Manifest:
    """Render the default job with another way to meet."""
    return only(jobs(replace(training_job(), rendezvous=rendezvous)), "PyTorchJob")


@pytest.fixture(scope="module")
def with_etcd() -> list[Manifest]:
    """Return the platform of a cluster that asks for etcd."""
    return rendered.platform(rendered.other_platform(etcd=True))


@pytest.mark.parametrize("rendezvous", [C10D, ETCD], ids=["c10d", "etcd"])
def test_the_operator_accepts_it(rendezvous):
    """Workers alone, which it takes with an elastic policy only."""
    job = job_of(rendezvous)
    assert_valid(job)
    assert list(refusals(job)) == []
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert set(replicas) == {"Worker"}
    assert replicas["Worker"]["replicas"] == 2
    assert replicas["Worker"]["template"]["metadata"]["labels"]["role"] == "worker"


def test_agents_restart_their_ranks_between_two_bounds():
    """No metrics: with them the operator would scale the job by the CPU of its pods."""
    assert job_of(C10D)["spec"]["elasticPolicy"] == {
        "rdzvBackend": "c10d",
        "rdzvId": "megatron-cpt-techpulse",
        "minReplicas": 1,
        "maxReplicas": 4,
        "maxRestarts": 3,
    }


def test_etcd_is_reached_by_its_service():
    """With the second version of torch's own rendezvous, which is the one in use."""
    wanted = {"rdzvBackend": "etcd-v2", "rdzvHost": "etcd", "rdzvPort": 2379}
    assert job_of(ETCD)["spec"]["elasticPolicy"].items() >= wanted.items()


def test_etcd_is_there_when_asked_for(platform, with_etcd):
    """Nothing of it otherwise."""
    assert not [each for each in platform if each["metadata"]["name"] == "etcd"]
    kinds = {each["kind"] for each in with_etcd if each["metadata"]["name"] == "etcd"}
    assert kinds == {"Deployment", "Service"}


def test_etcd_speaks_what_torch_speaks(with_etcd):
    """The second interface is off by default, and gone from etcd 3.6."""
    assert "--enable-v2" in pod(only(with_etcd, "Deployment", "etcd")).container["args"]
    assert ":3.5." in pins.ETCD_IMAGE
