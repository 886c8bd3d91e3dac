"""Managed node groups as EKS, Auto Scaling and the API server see them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.aws.session import Aws, if_there
from megatron_eks.ops.jobs import room
from megatron_eks.ops.kube.pods import has_ended
from megatron_eks.plan.cluster.pools import POOL_LABEL, PoolPlan

_GONE = "ResourceNotFoundException"


@dataclass(frozen=True)
class NodeGroup:
    """A node group that exists."""

    name: str
    status: str
    wanted: int
    minimum: int
    maximum: int
    scaling_groups: tuple[str, ...]
    issues: tuple[tuple[str, str], ...]
    """Code and message of what EKS finds wrong with its health."""
    ami_release: str = ""


class NodeGroups:
    """The node groups of one cluster."""

    def __init__(self, cluster: str, aws: Aws) -> None:
        self.cluster, self._aws, self._eks = cluster, aws, aws.client("eks")

    def find(self, name: str) -> NodeGroup | None:
        """Return a node group; None where it, or its cluster, does not exist."""
        describe = self._eks.describe_nodegroup
        found = if_there(describe, _GONE, clusterName=self.cluster, nodegroupName=name)
        if found is None:
            return None
        group = found["nodegroup"]
        scaling = group.get("scalingConfig", {})
        resources = group.get("resources", {})
        return NodeGroup(
            name=name,
            status=str(group.get("status", "")),
            wanted=int(scaling.get("desiredSize", 0)),
            minimum=int(scaling.get("minSize", 0)),
            maximum=int(scaling.get("maxSize", 0)),
            scaling_groups=tuple(
                str(each["name"]) for each in resources.get("autoScalingGroups", [])
            ),
            issues=tuple(
                (str(issue.get("code", "")), str(issue.get("message", "")))
                for issue in group.get("health", {}).get("issues", [])
            ),
            ami_release=str(group.get("releaseVersion", "")),
        )

    def wanted(self) -> Mapping[str, int]:
        """Return how many nodes each is asked to have."""
        # Asked first: on a cluster that is not there a list of its groups is an error of another
        # kind in some of AWS's stand-ins.
        if if_there(self._eks.describe_cluster, _GONE, name=self.cluster) is None:
            return {}
        pages = self._eks.get_paginator("list_nodegroups").paginate(clusterName=self.cluster)
        groups = (self.find(name) for page in pages for name in page["nodegroups"])
        return {group.name: group.wanted for group in groups if group}

    def resize(self, group: NodeGroup, nodes: int) -> None:
        """Ask for a number of nodes, and leave the bounds as they are."""
        self._eks.update_nodegroup_config(
            clusterName=self.cluster,
            nodegroupName=group.name,
            scalingConfig={
                "minSize": group.minimum,
                "maxSize": group.maximum,
                "desiredSize": nodes,
            },
        )

    def instances(self, group: NodeGroup) -> int:
        """Return how many instances it has that are billed, by the tags that EKS gives them."""
        pages = (
            self._aws.client("ec2")
            .get_paginator("describe_instances")
            .paginate(
                Filters=[
                    {"Name": "tag:eks:cluster-name", "Values": [self.cluster]},
                    {"Name": "tag:eks:nodegroup-name", "Values": [group.name]},
                    {"Name": "instance-state-name", "Values": ["pending", "running"]},
                ]
            )
        )
        return sum(len(each["Instances"]) for page in pages for each in page["Reservations"])

    def launch_failures(self, group: NodeGroup, since: datetime) -> list[str]:
        """Return why launches failed since then, the newest first."""
        reasons = []
        for name in group.scaling_groups:
            found = self._aws.client("autoscaling").describe_scaling_activities(
                AutoScalingGroupName=name, MaxRecords=20
            )
            reasons += [
                str(each.get("StatusMessage", ""))
                for each in found["Activities"]
                if each.get("StatusCode") in {"Failed", "Cancelled"} and each["StartTime"] >= since
            ]
        return [reason for reason in dict.fromkeys(reasons) if reason]


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


def job_pods(kubernetes: Client, pool: PoolPlan, *namespaces: str) -> list[str]:
    """Name the pods of jobs that run on a pool, or wait for it."""
    nodes = {node["metadata"]["name"] for node in _nodes(kubernetes, pool)}
    return sorted(
        pod["metadata"]["name"]
        for namespace in namespaces
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
