"""What `meks scale` asks a real API server about a pool: usable nodes, and pods of jobs on them."""

from dataclasses import replace

import pytest

from megatron_eks.kubernetes.client import wait_for
from megatron_eks.ops.cluster.node_groups import job_pods, usable_nodes
from tests.annex import jobs

pytestmark = pytest.mark.control_plane

NAMESPACE = "megatron-workshop"


def test_nodes_count_when_they_offer_every_device_of_their_type(client, plan):
    """The same nodes are of no use as a type with twice as many GPUs."""
    (pool,) = plan.pools
    assert usable_nodes(client, pool) == jobs.NODES
    larger = replace(pool, instance=replace(pool.instance, gpus=2 * pool.instance.gpus))
    assert usable_nodes(client, larger) == 0
    assert usable_nodes(client, replace(pool, name="another")) == 0


def test_pods_of_jobs_keep_a_pool_until_they_have_ended(client, plan, submit):
    """From their creation on, whether they run yet or not."""
    (pool,) = plan.pools
    before = job_pods(client, pool, NAMESPACE)
    job = jobs.training_job("keeps")
    submit(job)
    jobs.wait_for_pods(client, job, 2, "Running")
    found = job_pods(client, pool, NAMESPACE)
    assert set(found) - set(before) == {"keeps-master-0", "keeps-worker-0"}
    jobs.delete(client, job)
    wait_for("no pod", lambda: "keeps-master-0" not in job_pods(client, pool, NAMESPACE))
