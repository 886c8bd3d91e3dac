"""What the API server knows of a pool: nodes that offer their devices, and job pods on them."""

from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.jobs import room
from megatron_eks.ops.kube.pods import has_ended
from megatron_eks.plan.cluster.pools import POOL_LABEL, PoolPlan


def usable_nodes(kubernetes: Client, pool: PoolPlan) -> int:
    """Count the nodes that are ready and offer all GPUs and EFA interfaces of their type.

    A node is Ready minutes before its device plugins have told the kubelet of a device.
    """
    wanted = {
        "nvidia.com/gpu": pool.instance.gpus,
        "vpc.amazonaws.com/efa": pool.instance.efa_interfaces,
    }
    return sum(
        node.ready
        and all(node.allocatable.get(device, 0) >= number for device, number in wanted.items())
        for node in room.rooms(_nodes(kubernetes, pool), ())
    )


def job_pods(kubernetes: Client, pool: PoolPlan, namespace: str) -> list[str]:
    """Name the pods of jobs that run on a pool, or wait for it."""
    nodes = {node["metadata"]["name"] for node in _nodes(kubernetes, pool)}
    return sorted(
        pod["metadata"]["name"]
        for pod in kubernetes.list("v1", "Pod", namespace)
        # What is ending already, as of a job that has failed, has nothing left to lose.
        if "deletionTimestamp" not in pod["metadata"]
        and not has_ended(pod)
        and (
            pod["spec"].get("nodeName") in nodes
            or pod["spec"].get("nodeSelector", {}).get(POOL_LABEL) == pool.name
        )
    )


def _nodes(kubernetes: Client, pool: PoolPlan) -> list[Object]:
    return kubernetes.list("v1", "Node", labels=f"{POOL_LABEL}={pool.name}")
