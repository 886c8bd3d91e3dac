"""Ranks that meet by themselves: what the operator is told."""

from dataclasses import replace

from megatron_eks.plan.job import Rendezvous
from tests.charts.operator_rules import refusals
from tests.charts.rendered import Manifest, jobs, only, training_job
from tests.charts.validation import assert_valid

C10D = Rendezvous(1, 4, max_restarts=3)


def job_of(rendezvous: Rendezvous) -> Manifest:
    """Render the default job with another way to meet."""
    return only(jobs(replace(training_job(), rendezvous=rendezvous)), "PyTorchJob")


def test_the_operator_accepts_it():
    """Workers alone, which it takes with an elastic policy only."""
    job = job_of(C10D)
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


def test_a_job_whose_ranks_are_known_has_no_policy(job):
    """The default stays what the source documents' commands expect."""
    assert "elasticPolicy" not in job["spec"]
