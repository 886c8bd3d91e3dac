"""Where Kueue puts the ranks of jobs, and for whom it takes a place away."""

import io
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import cast

import cdk8s
import pytest

from charts.platform.kueue_queues import KueueQueues
from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WITH_PODS, AnyWorkload, templates, whole
from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes.client import ApiError, Object, wait_for
from megatron_eks.localcloud.kubernetes.nodes import is_ready
from megatron_eks.ops.console import Console, SystemClock
from megatron_eks.ops.jobs import fit, queues
from megatron_eks.ops.kube import jobs as live
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import POOL_LABEL, PoolPlan
from megatron_eks.plan.cluster.queues import topology_levels
from megatron_eks.plan.jobs.job import JobPlan
from tests.annex import jobs
from tests.charts import rendered

pytestmark = pytest.mark.control_plane

_SPACE = "megatron-workshop"
# A JobSet stands for all kinds where there is no time for each.
_KINDS = [pytest.param(each, marks=pytest.mark.long) for each in ("PyTorchJob", "TrainJob", "Job")]


def _below(client, job) -> list[str]:
    """Return the part of the network in which each of four ranks is, in their order."""
    places = {}
    pods = jobs.pods_of(client, job)
    for pod in (each for each in pods if each["spec"].get("nodeName")):
        node = client.get("v1", "Node", pod["spec"]["nodeName"])
        rank = int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
        places[rank] = node["metadata"]["labels"][topology_levels(rendered.cluster().pools[0])[-2]]
    return [places[rank] for rank in sorted(places)] if places.keys() == {0, 1, 2, 3} else []


def _pool(client, plan, name: str, *blocks: int) -> JobPlan:
    """Add a pool with a queue of its own, so many of whose nodes are below each network node.

    Return a job of two ranks on two of them, which are a group.
    """
    pool = replace(plan.pools[0], name=name, max_nodes=sum(blocks))
    pool = replace(pool, labels={**pool.labels, POOL_LABEL: name})
    team = replace(plan.teams[0], name=name, gpus=8 * sum(blocks))
    _add_queues(client, replace(plan, name=name, pools=(pool,), teams=(team,)))
    for number, block in enumerate(b for b, count in enumerate(blocks) for _ in range(count)):
        _add_node(client, pool, number, f"nn-{block}")
    # A job is placed on those that are ready when it is submitted.
    labels = f"{POOL_LABEL}={name}"
    wait_for("nodes", lambda: all(map(is_ready, client.list("v1", "Node", labels=labels))))
    job = replace(rendered.training_job(), name=name, pool=pool, nodes=2, queue=name)
    # CPU and memory still fill each.
    job = replace(job, resources=replace(job.resources, gpus=4, efa=2))
    assert job.training
    layout = replace(job.training.layout, tensor=4, context=2, pipeline=1, data=1)
    return replace(job, training=replace(job.training, layout=layout))


def _add_queues(client, plan: ClusterPlan) -> None:
    for each in cdk8s.Testing.synth(KueueQueues(cdk8s.App(), "queues", plan=plan)):
        client.apply(each)


def _add_node(client, pool: PoolPlan, number: int, block: str) -> None:
    node = gpu_node(pool, number)
    node["metadata"]["labels"][topology_levels(pool)[-2]] = block
    client.create(node)


def _begin(client, job: JobPlan, kind: str) -> Object:
    """Start a job whose pods run until they are deleted."""
    objects = rendered.jobs(replace(job, workload=cast("AnyWorkload", kind.lower())))
    for each in (each for each in objects if each["kind"] in WITH_PODS):
        for _, template in templates(each):
            notes = template["metadata"].setdefault("annotations", {})
            notes["localcloud/complete-after"] = "3600s"
    for each in objects:
        client.apply(each)
    return whole(rendered.only(objects, kind), objects)


@pytest.mark.parametrize("kind", ["JobSet", *_KINDS[1:]])
def test_groups_of_ranks_are_divided_only_where_they_must_be(client, plan, kind):
    """Two network nodes with three nodes each hold two groups of two; then one has one node left.

    Ranks placed close to each other and nothing else would be three and one.
    """
    job = replace(_pool(client, plan, f"blocks-{kind.lower()}", 3, 3), nodes=4)
    said = []
    for run, lost in (("near", ()), ("far", (4, 5))):
        for number in lost:
            client.delete("v1", "Node", f"{job.queue}-{number}")
        workload = cast("AnyWorkload", kind.lower())
        objects = rendered.jobs(replace(job, name=f"{job.name}-{run}", workload=workload))
        err = io.StringIO()
        fit.ease(client, objects, Console(sys.stdin, io.StringIO(), err, SystemClock()))
        said.append(err.getvalue())
        for each in objects:
            client.apply(each)
        found = whole(rendered.only(objects, kind), objects)
        below = wait_for("four places", partial(_below, client, found), 120)
        jobs.delete(client, found)
        apart = [below[rank] != below[rank + 1] for rank in (0, 2)]
        assert apart.count(True) == (1 if lost else 0)
    assert said[0] == ""
    assert "of 2 groups of 2 nodes" in said[1]
    assert "1 fit below one network node" in said[1]


@pytest.mark.parametrize("kind", ["JobSet", *_KINDS])
def test_a_node_that_fails_is_replaced_in_its_jobs_place(client, plan, kind):
    """Below the same network node where ranks are a group, though another would be filled first.

    Where none is free there, the job waits as a whole, and `meks` says for which node.
    """
    name = f"fails-{kind.lower()}"
    planned = _pool(client, plan, name, 4, 1)
    pool, job = planned.pool, _begin(client, planned, kind)
    assert pool

    def places(lost: str = "") -> list[str]:
        pods = jobs.pods_of(client, job)
        for each in pods:
            # So a kubelet says it of a pod that goes, and a Job waits for that; KWOK does not.
            if "deletionTimestamp" in each["metadata"] and each["status"]["phase"] == "Running":
                path = f"/api/v1/namespaces/{_SPACE}/pods/{each['metadata']['name']}/status"
                ended = {"status": {"phase": "Failed"}}
                with suppress(ApiError):  # it has gone
                    client.request("PATCH", path, ended, {}, "application/merge-patch+json")
        found = [e["spec"]["nodeName"] for e in pods if e["status"]["phase"] == "Running"]
        return [] if lost in found or len(found) != 2 else found

    def fail(name: str) -> None:
        node = client.get("v1", "Node", name)
        node["spec"]["taints"] += [{"key": "fails", "effect": "NoExecute"}]
        client.request("PUT", f"/api/v1/nodes/{name}", node)

    *_, first = wait_for("two pods", places, 120)
    fail(first)
    now = wait_for("another node", partial(places, first), 120)
    (workload,) = _workloads(client, name)
    assert not workload["status"].get("schedulingStats", {}).get("evictions")
    label = topology_levels(pool)[-2]
    below = {client.get("v1", "Node", each)["metadata"]["labels"][label] for each in now}
    # A PyTorchJob's pods have their place as a wish, and the smallest room is taken first.
    assert below == {"nn-0"} | ({"nn-1"} if kind == "PyTorchJob" else set())
    for number in range(5):
        if (spare := f"{name}-{number}") not in {first, *now}:
            client.delete("v1", "Node", spare)
    *_, second = now
    fail(second)

    def why() -> str:
        places()
        return queues.why(client, live.get(client, _SPACE, name))

    assert f"no other node could replace failed {second}" in wait_for("the reason", why, 120)
    _add_node(client, pool, 9, "nn-0")
    assert f"{name}-9" in wait_for("both again", partial(places, second), 120)
    jobs.delete(client, job)


def _workloads(client, job: str) -> list[Object]:
    found = client.list(kueue.API_VERSION, "Workload", _SPACE)
    return [each for each in found if each["metadata"]["ownerReferences"][0]["name"] == job]


def test_teams_that_borrow_the_same_nodes_do_not_take_them_from_each_other(client, plan):
    """Though of other pools they borrow now more and now less; who owns the nodes gets them."""
    pools = []
    for name, count in (("others", 8), ("turns", 2)):
        pool = replace(plan.pools[0], name=name, max_nodes=count)
        pools.append(replace(pool, labels={**pool.labels, POOL_LABEL: name}))
        for number in range(count):
            client.create(gpu_node(pools[-1], number))
    teams = [replace(plan.teams[0], name=e, may_borrow=True, gpus=8) for e in ("left", "right")]
    teams.append(replace(teams[0], name="owner", gpus=64))
    _add_queues(client, replace(plan, name="turns", pools=tuple(pools), teams=tuple(teams)))

    def begin(team: str, pool: PoolPlan) -> Object:
        name = f"{team}-{pool.name}"
        job = replace(rendered.training_job(), name=name, pool=pool, nodes=2, queue=team)
        return _begin(client, job, "Job")

    others, turns = pools
    long = begin("left", turns)
    jobs.wait_for_pods(client, long, 2, "Running")
    more = begin("left", others)
    jobs.wait_for_pods(client, more, 2, "Running")
    waits = begin("right", turns)
    wait_for("a reason", lambda: queues.why(client, live.get(client, _SPACE, "right-turns")))
    jobs.delete(client, more)
    less = begin("right", others)
    jobs.wait_for_pods(client, less, 2, "Running")
    (workload,) = _workloads(client, "left-turns")
    assert not workload["status"].get("schedulingStats", {}).get("evictions")
    owns = begin("owner", turns)
    jobs.wait_for_pods(client, owns, 2, "Running", 120)
    conditions = {e["type"]: e for e in _workloads(client, "left-turns")[0]["status"]["conditions"]}
    assert conditions["Preempted"]["reason"] == "InCohortReclamation"
    for each in (long, waits, less, owns):
        jobs.delete(client, each)
