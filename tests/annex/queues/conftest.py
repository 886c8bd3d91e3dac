"""A control plane whose jobs wait in queues."""

import pytest

from megatron_eks.demo.nodes import gpu_node, system_nodes
from megatron_eks.kubernetes.client import Client, wait_for
from megatron_eks.localcloud.kubernetes import nodes
from megatron_eks.localcloud.kubernetes.control_plane import ControlPlane
from megatron_eks.localcloud.kubernetes.controllers import CONTROLLERS
from megatron_eks.plan.cluster.cluster import ClusterPlan
from tests.charts import rendered


@pytest.fixture(scope="package")
def plan() -> ClusterPlan:
    """Plan two nodes whose jobs wait in a queue."""
    return rendered.other_platform(workload="trainjob", kueue=True, observed=True)


@pytest.fixture(scope="package")
def plane(start_plane, tmp_path_factory) -> ControlPlane:
    """Start a control plane."""
    found: ControlPlane = start_plane(tmp_path_factory.mktemp("queues"))
    return found


@pytest.fixture(scope="package")
def client(plane, plan) -> Client:
    """Return an administrator of a cluster with every controller, its queues, and one node."""
    files = rendered.platform_files("trainjob", kueue=True, observed=True)
    for each in CONTROLLERS:
        each(plane, files.pop(each.name)).install()
    for manifest in (each for objects in files.values() for each in objects):
        # It is of two nodes, and tests add pools.
        if manifest["kind"] != "ResourceQuota":
            plane.client.apply(manifest)
    for node in (gpu_node(plan.pools[0], 0), *system_nodes(plan)):
        plane.client.create(node)
    wait_for("nodes", lambda: all(map(nodes.is_ready, plane.client.list("v1", "Node"))))
    found: Client = plane.client
    return found
