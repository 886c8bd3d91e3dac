"""A hundred nodes and one job on all of them; `make bench` measures a thousand."""

from dataclasses import replace

import pytest

from megatron_eks.demo.nodes import gpu_node
from megatron_eks.kubernetes.client import wait_for
from megatron_eks.localcloud.kubernetes import nodes
from megatron_eks.ops.jobs.look import look
from megatron_eks.plan.cluster.pools import POOL_LABEL
from tests.annex import jobs

pytestmark = pytest.mark.control_plane

NODES = 100
NAMESPACE = "megatron-workshop"
POOL = {POOL_LABEL: "hundred"}
_SECONDS = 120


def set_quota(client, devices: dict[str, str]) -> None:
    """Change what training jobs may hold."""
    quota = client.get("v1", "ResourceQuota", "training", NAMESPACE)
    quota["metadata"] = {"name": "training", "namespace": NAMESPACE}
    del quota["status"]
    quota["spec"]["hard"] = devices
    client.apply(quota)


@pytest.fixture
def hundred(client, plan):
    """Add a pool of a hundred nodes and the quota for them; afterwards both are gone."""
    pool = replace(plan.pools[0], name="hundred", labels=POOL)
    before = client.get("v1", "ResourceQuota", "training", NAMESPACE)["spec"]["hard"]
    set_quota(
        client,
        {
            "requests.nvidia.com/gpu": str(NODES * pool.instance.gpus),
            "requests.vpc.amazonaws.com/efa": str(NODES * pool.instance.efa_interfaces),
        },
    )
    made = [gpu_node(pool, number) for number in range(NODES)]
    for node in made:
        client.create(node)
    found = f"{POOL_LABEL}=hundred"
    wait_for(
        "the nodes",
        lambda: all(map(nodes.is_ready, client.list("v1", "Node", labels=found))),
        _SECONDS,
    )
    yield
    for node in made:
        client.delete("v1", "Node", node["metadata"]["name"])
    set_quota(client, before)


@pytest.mark.long
@pytest.mark.usefixtures("hundred")
def test_a_job_takes_a_hundred_nodes(client, submit):
    """A rank on each, all told the same size and each its own rank."""
    job = jobs.training_job("hundred", NODES)
    for pod in jobs.pod_specs(job):
        pod["nodeSelector"] = POOL
    submit(job)
    pods = jobs.wait_for_pods(client, job, NODES, "Running", _SECONDS)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == NODES
    variables = [jobs.environment(pod) for pod in pods]
    assert {each["PET_NNODES"] for each in variables} == {str(NODES)}
    assert {int(each["PET_NODE_RANK"]) for each in variables} == set(range(NODES))
    assert {each["WORLD_SIZE"] for each in variables} == {str(NODES * 8)}
    found = look(client, NAMESPACE, "hundred")
    own = {
        str(number): pod["spec"]["nodeName"]
        for pod, number in ((pod, jobs.environment(pod)["PET_NODE_RANK"]) for pod in pods)
    }
    shown = {str(rank.number): rank.pod.node if rank.pod else "" for rank in found.ranks}
    assert shown == own
