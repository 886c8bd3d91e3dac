"""One mistake in a job each: somebody says what is wrong before GPUs wait for nothing."""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from megatron_eks.guards.check import check_manifests
from megatron_eks.kubernetes.client import ApiError, Object, wait_for
from tests.annex import jobs

MISTAKES = yaml.safe_load(Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8"))

# Who else may tell: the API server, an event, the scheduler.
LATE = {"apply", "event", "scheduler"}


def wrong_job(mistake: dict[str, Any]) -> Object:
    """Return the shipped job with one mistake."""
    job: Object = deepcopy(jobs.training_job(mistake["name"]))
    for path, value in (mistake.get("set") or {}).items():
        for parent, last in _nodes(job, path):
            parent.append(value) if last == len(parent) else parent.__setitem__(last, value)
    # From the end, so that the places of a list's earlier elements stay right.
    for path in sorted(mistake.get("drop") or [], reverse=True):
        for parent, last in _nodes(job, path):
            del parent[last]
    return job


def _nodes(job: Object, path: str) -> Iterator[tuple[Any, Any]]:
    """Return the parents of what a path names, each with the last key; `pods` are both replicas."""
    name, _, rest = path.partition(".")
    replicas = {"pods": ("Master", "Worker"), "Master": ("Master",), "Worker": ("Worker",)}
    start = "spec.pytorchReplicaSpecs.{}.template.spec." + rest
    for each in [start.format(one) for one in replicas.get(name, ())] or [path]:
        *parents, last = [part.strip("[]") for part in re.findall(r"\[[^\]]*\]|[^.\[\]]+", each)]
        node: Any = job
        for key in parents:
            node = node[int(key) if isinstance(node, list) else key]
        yield node, int(last) if isinstance(node, list) else last


def told(key: str) -> list[Any]:
    """Return the mistakes that somebody tells of."""
    return [pytest.param(each, id=each["name"]) for each in MISTAKES if key in each]


def test_no_mistake_goes_unnoticed():
    """What the cluster takes without a word, `meks check` finds."""
    for mistake in MISTAKES:
        assert {*LATE, "check"} & set(mistake), mistake["name"]
    assert len({mistake["name"] for mistake in MISTAKES}) == len(MISTAKES) > 60


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each["name"] for each in MISTAKES])
def test_what_the_guards_find(mistake):
    """Exactly these, and nothing in what only a cluster can know."""
    # The job stands alone here; the policy for its ranks, which it lacks, is in its rendered file.
    right = {finding.code for finding in check_manifests([jobs.training_job(mistake["name"])])}
    codes = {finding.code for finding in check_manifests([wrong_job(mistake)])}
    assert {str(code) for code in codes - right} == set(mistake.get("check", ()))


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
    """Every pod runs, and only the guards know better."""
    job = wrong_job(mistake)
    submit(job)
    count = sum(each["replicas"] for each in job["spec"]["pytorchReplicaSpecs"].values())
    jobs.wait_for_pods(client, job, count, "Running")
