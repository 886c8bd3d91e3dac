"""An account to look into: what several checks need is asked for once."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from botocore.client import BaseClient

from megatron_eks.config.outputs import Outputs
from megatron_eks.ops.aws.session import Aws, if_there
from megatron_eks.ops.cluster.node_groups import NodeGroup, NodeGroups
from megatron_eks.plan.cluster.cluster import ClusterPlan

Described = Mapping[str, Any]
"""A thing as AWS describes it."""


@dataclass
class Account:
    """An account, and the cluster that is or will be in it; None is what is not there."""

    aws: Aws
    plan: ClusterPlan
    outputs: Outputs
    now: datetime

    def client(self, service: str) -> BaseClient:
        """Return the client of a service."""
        return self.aws.client(service)

    @cached_property
    def caller(self) -> str:
        """The ARN of who asks."""
        return str(self.client("sts").get_caller_identity()["Arn"])

    @cached_property
    def cluster(self) -> Described | None:
        """The EKS cluster."""
        describe, name = self.client("eks").describe_cluster, self.plan.eks_name
        found = if_there(describe, "ResourceNotFoundException", name=name)
        return found and dict(found["cluster"])

    @cached_property
    def subnets(self) -> dict[str, Described]:
        """Those that the file names or that the cluster has, by identifier."""
        existing, cluster = self.plan.network.existing, self.cluster or {}
        wanted = {*(existing.private_subnets.values() if existing else ())}
        wanted |= {*cluster.get("resourcesVpcConfig", {}).get("subnetIds", ())}
        if not wanted:
            return {}
        filters = [{"Name": "subnet-id", "Values": sorted(wanted)}]
        found = self.client("ec2").describe_subnets(Filters=filters)["Subnets"]
        return {each["SubnetId"]: each for each in found}

    def groups(self, name: str, *values: str) -> list[Described]:
        """Return the security groups that exist, by a filter of EC2 such as `group-id`."""
        filters = [{"Name": name, "Values": values}]
        return list(self.client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"])

    @cached_property
    def node_groups(self) -> dict[str, NodeGroup | None]:
        """Those of the pools."""
        if "Cluster" not in self.plan.stacks:
            return {}
        groups = NodeGroups(self.plan.eks_name, self.aws)
        return {pool.name: groups.find(pool.name) for pool in self.plan.pools}

    @cached_property
    def file_systems(self) -> dict[str, Described | None]:
        """Those of FSx that the outputs name."""
        describe = self.client("fsx").describe_file_systems
        found = {}
        for number in (each.id for each in self.outputs.file_systems if not each.preview):
            answer = if_there(describe, "FileSystemNotFound", FileSystemIds=[number])
            found[number] = answer and dict(answer["FileSystems"][0])
        return found
