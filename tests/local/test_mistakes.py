"""One mistake in a job each: somebody says what is wrong before GPUs wait for nothing."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from megatron_eks.kubernetes.client import ApiError, Object, wait_for
from megatron_eks.rules.manifests import check_manifests
from tests.local import jobs
from tests.rules import cases

MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))

# Who else may tell: the API server, an event, the scheduler.
LATE = {"apply", "event", "scheduler"}


def wrong_job(mistake: dict[str, Any]) -> Object:
    """Return the shipped job with one mistake."""
    job: Object = cases.copy(jobs.training_job(mistake["name"]))
    cases.change_object(job, mistake)
    return job


def told(key: str) -> list[Any]:
    """Return the mistakes that somebody tells of."""
    return [pytest.param(each, id=each["name"]) for each in MISTAKES if key in each]


def test_no_mistake_goes_unnoticed():
    """What the cluster takes without a word, `meks check` finds."""
    for mistake in MISTAKES:
        assert {*LATE, "check"} & set(mistake), mistake["name"]
    assert len({mistake["name"] for mistake in MISTAKES}) == len(MISTAKES) > 60


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["name"] for each in MISTAKES])
def test_what_the_rules_find(mistake):
    """Exactly these, and nothing in what only a cluster can know."""
    codes = {str(finding.code) for finding in check_manifests([wrong_job(mistake)])}
    assert codes == set(mistake.get("check", ()))


@pytest.mark.control_plane
@pytest.mark.parametrize("mistake", told("apply"))
def test_what_the_api_server_and_the_webhook_refuse(client, mistake):
    """The job never exists, and the message names the field."""
    job = wrong_job(mistake)
    with pytest.raises(ApiError, match=mistake["apply"]):
        client.apply(job)


@pytest.mark.control_plane
@pytest.mark.parametrize("mistake", [*told("event"), *told("scheduler")])
def test_what_a_person_reads_in_the_events_of_the_job(client, submit, mistake):
    """`kubectl describe pytorchjob` shows the reason; the job's status has none."""
    job = wrong_job(mistake)
    submit(job)
    reason = "Unschedulable" if "scheduler" in mistake else "FailedCreate(Pod|Service)"
    wanted = re.compile(mistake.get("event") or mistake["scheduler"])

    def said() -> bool:
        return any(
            re.fullmatch(reason, event["reason"]) and wanted.search(event["message"])
            for event in jobs.events_of(client, job)
        )

    wait_for(wanted.pattern, said)
    status = client.get(job["apiVersion"], "PyTorchJob", *jobs.place(job)).get("status", {})
    conditions = {each["type"] for each in status.get("conditions", ())}
    assert conditions <= {"Created"}


@pytest.mark.control_plane
@pytest.mark.parametrize(
    "mistake",
    [each for each in told("check") if set(each.values[0]) <= {"name", "set", "drop", "check"}],
)
def test_what_a_cluster_takes_without_a_word(client, submit, mistake):
    """Every pod runs, and only the rules know better."""
    job = wrong_job(mistake)
    submit(job)
    count = sum(each["replicas"] for each in job["spec"]["pytorchReplicaSpecs"].values())
    jobs.wait_for_pods(client, job, count, "Running")
