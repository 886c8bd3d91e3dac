"""Which instances of a cluster EC2 bills, whether they have joined it or not."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from megatron_eks.plan.cluster.capacity import CapacityKind

if TYPE_CHECKING:
    from botocore.client import BaseClient

_BILLED = ["pending", "running", "shutting-down"]
_CAPACITY: dict[str, CapacityKind] = {"spot": "spot", "capacity-block": "capacity_block"}


@dataclass(frozen=True)
class Instance:
    """One instance of a managed node group."""

    instance_id: str
    instance_type: str
    node_group: str
    capacity: CapacityKind
    since: datetime


def instances(cluster: str, ec2: "BaseClient") -> list[Instance]:
    """Return the instances of a cluster's node groups, by the tags that EKS gives them."""
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": "tag:eks:cluster-name", "Values": [cluster]},
            {"Name": "instance-state-name", "Values": _BILLED},
        ]
    )
    return [
        _instance(each)
        for page in pages
        for reservation in page["Reservations"]
        for each in reservation["Instances"]
    ]


def _instance(told: Mapping[str, Any]) -> Instance:
    tags = {tag["Key"]: tag["Value"] for tag in told.get("Tags", ())}
    return Instance(
        instance_id=told["InstanceId"],
        instance_type=told["InstanceType"],
        node_group=tags.get("eks:nodegroup-name", ""),
        capacity=_CAPACITY.get(told.get("InstanceLifecycle", ""), "on_demand"),
        since=told["LaunchTime"].astimezone(UTC),
    )
