"""Kueue itself, with the queues of our charts: jobs start as a whole, and in their turn."""

import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import pytest

from megatron_eks.catalog.workloads import AnyWorkload, whole
from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes.client import Object, wait_for
from megatron_eks.ops.jobs import expected, fit, queue, queues
from megatron_eks.ops.kube import jobs as live
from megatron_eks.plan.cluster.platform import TRAINING_PRIORITY, VALIDATION_PRIORITY
from tests import schemas
from tests.annex import jobs
from tests.charts import rendered

pytestmark = pytest.mark.control_plane

_SPACE = "megatron-workshop"
_KINDS = (*jobs.KINDS, "Job")


@pytest.fixture
def start(client) -> Iterator[Callable[..., Object]]:
    """Return a function that starts a job in the queue, which goes after the test."""
    begun = []

    def begin(
        name: str, kind: str = "PyTorchJob", priority: str = TRAINING_PRIORITY, count: int = 2
    ) -> Object:
        plan = replace(
            rendered.training_job(),
            name=name,
            nodes=count,
            workload=cast("AnyWorkload", kind.lower()),
            queue=_SPACE,
            priority_class=priority,
        )
        objects = rendered.jobs(plan)
        for each in objects:
            client.apply(each)
        begun.append(whole(rendered.only(objects, kind), objects))
        return begun[-1]

    yield begin
    for each in begun:
        jobs.delete(client, each)


def _waits(client, name: str) -> str:
    """Return why a job waits, once Kueue has looked at it; none of its pods is there."""

    def told() -> str:
        job = live.find(client, _SPACE, name)
        return queues.why(client, job) if job else ""

    why = wait_for("a reason", told)
    assert not live.pods_of(client, live.get(client, _SPACE, name))
    return why


def _queue(client, plan) -> Object:
    found = queues.read(client)
    starts = expected.starts(client, (), found)
    return dict(schemas.checked("queue", queue.as_json(plan.name, found, starts, client.now())))


def test_a_job_waits_as_a_whole_for_nodes(client, plan, start):
    """Quotas are of the pool at its largest; a pod on the one node that is there would be half."""
    job = start("early")
    assert "nodes have room for" in _waits(client, "early")
    client.create(gpu_node(plan.pools[0], 1))
    jobs.wait_for_pods(client, job, 2, "Running")
    places = {pod["spec"]["nodeName"] for pod in jobs.pods_of(client, job)}
    assert places == {"p4d-0", "p4d-1"}


@pytest.mark.parametrize("kind", _KINDS)
def test_two_jobs_that_want_all_nodes_run_one_after_the_other(client, plan, start, kind):
    """Of every kind of object; KWOK ends the pods of all but the first by itself."""
    name = kind.lower()
    first = start(f"{name}-one", kind)
    wait_for("the first", lambda: len(jobs.pods_of(client, first)) == 2)
    second = start(f"{name}-two", kind)
    if kind == "PyTorchJob":
        assert _waits(client, f"{name}-two") == (
            f"team {_SPACE} uses 16 of its 16 GPUs of pool p4d until {name}-one ends"
        )
        shown = [line.split() for line in queue.lines(queues.read(client), {}, client.now())]
        assert [_SPACE, "p4d", "16", "16", "0"] in shown
        found = _queue(client, plan)
        assert [(e["job"], e["gpus"], e["next"]) for e in found["waiting"]] == [
            (f"{name}-two", 16, True)
        ]
        assert [each["job"] for each in found["running"]] == [f"{name}-one"]
        (ahead,) = (e for e in fit.obstacles(client, plan, second) if "in the queue" in e.found)
        assert f"until {name}-one ends" in ahead.found
        jobs.delete(client, first)
    wait_for("the second", lambda: len(jobs.pods_of(client, second)) == 2, 120)
    if kind != "PyTorchJob":
        ended = live.get(client, _SPACE, f"{name}-one")
        assert ended.ended == "Succeeded"


def test_a_higher_class_takes_the_place(client, plan, start):
    """What was running waits until it is its turn again, and then goes on."""
    low = start("check", priority=VALIDATION_PRIORITY)
    jobs.wait_for_pods(client, low, 2, "Running")
    high = start("training")
    jobs.wait_for_pods(client, high, 2, "Running")
    assert "until training ends" in _waits(client, "check")
    jobs.delete(client, high)
    jobs.wait_for_pods(client, low, 2, "Running")
    assert _queue(client, plan)["waiting"] == []


def test_a_queue_that_is_not_there_is_told_before(client, plan):
    """A job would wait in it for ever."""
    (job,) = (each for each in rendered.jobs() if each["kind"] == "PyTorchJob")
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "none"
    found = [each for each in fit.obstacles(client, plan, job) if each.is_final]
    assert [each.found for each in found] == ["there is no queue none"]


def _metrics(plane, account: str) -> str:
    """Ask Kueue for its metrics, with the token of a service account."""
    path = f"/api/v1/namespaces/default/serviceaccounts/{account}/token"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = plane.client.request("POST", path, review)["status"]["token"]
    url = f"https://127.0.0.1:{plane.ports['kueue-metrics']}/metrics"
    asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    unchecked = ssl._create_unverified_context()  # noqa: S323, SLF001 -- as the scraper's tls_config
    with urllib.request.urlopen(asked, context=unchecked) as found:  # noqa: S310 -- as above
        return str(found.read().decode())


def test_its_metrics_are_those_that_rules_and_dashboards_ask_for(plane, client, start):
    """Told to whom may read /metrics, as AWS's scraper may (AMP User Guide, "Collectors")."""
    for name in ("scraper", "anybody"):
        metadata = {"name": name, "namespace": "default"}
        client.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    rbac, named = "rbac.authorization.k8s.io", {"metadata": {"name": "scraper"}}
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", **named}
    client.apply({**role, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]})
    subject = {"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}
    client.apply(
        {
            **role,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "scraper"},
            "subjects": [subject],
        }
    )
    jobs.wait_for_pods(client, start("counted", count=1), 1, "Running")
    start("counted-too")
    _waits(client, "counted-too")
    found = {
        (name, *(each for each in labels.split(",") if each.startswith(("cluster_q", "resource="))))
        for name, labels in re.findall(
            r"^(kueue_\w+)\{(.*)\} [^0]", _metrics(plane, "scraper"), re.MULTILINE
        )
    }
    team, gpus = f'cluster_queue="{_SPACE}"', 'resource="nvidia.com/gpu"'
    of_gpus = {
        (f"kueue_cluster_queue_{name}", team, gpus) for name in ("resource_usage", "nominal_quota")
    }
    counts = {(f"kueue_{name}", team) for name in ("pending_workloads", "admitted_workloads_total")}
    assert of_gpus | counts <= found
    with pytest.raises(urllib.error.HTTPError, match="403"):
        _metrics(plane, "anybody")
