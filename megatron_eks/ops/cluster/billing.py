"""What is billed: how `meks cost` asks the API server and EC2, and a pool's nodes of some weeks."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from megatron_eks.config.codes import Code
from megatron_eks.ops.cluster import cost
from megatron_eks.ops.cluster.node_groups import NodeGroup, NodeGroups
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import holdings
from megatron_eks.ops.kube import access, teams
from megatron_eks.ops.opening import Reach, console_here, load, opened
from megatron_eks.plan.cluster.capacity import CapacityKind
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import PoolPlan
from megatron_eks.plan.cost import node_price
from megatron_eks.plan.spending import RunningNode, hours_between
from megatron_eks.project import Project

if TYPE_CHECKING:
    from botocore.client import BaseClient

    from megatron_eks.ops.aws.session import Aws

_NODE_GROUP = "eks:nodegroup-name"
_BILLED = ["pending", "running", "shutting-down"]
_CAPACITY: dict[str, CapacityKind] = {"spot": "spot", "capacity-block": "capacity_block"}


def run(reach: Reach, job: str | None, output: str) -> int:
    """Show what runs and costs; return the exit code."""
    console = console_here()
    project = load(reach.cluster, console)
    teams.checked(project, reach.team)
    instances, no_instances = _instances(project)
    project, held, no_holdings, is_local = _holdings(reach, project, job, console)
    if is_local and "AWS_ENDPOINT_URL" not in os.environ:
        # What the account of this machine's credentials runs is something else.
        instances = None
        no_instances = "this is a cluster of `meks local up`: nobody is billed for it"
    if isinstance(no_holdings, Failure) and (job or isinstance(no_instances, Failure)):
        raise no_holdings
    notes = [
        why if isinstance(why, str) else f"{why.found} [{why.finding}] - {why.remedy}"
        for why in (no_holdings, no_instances)
        if why
    ]
    return cost.run(project, held, instances, notes, output=output, console=console)


def _holdings(
    reach: Reach, project: Project, job: str | None, console: Console
) -> tuple[Project, holdings.Holdings | None, Failure | None, bool]:
    """Ask the API server, as the team has it; say why not where it cannot be asked."""
    try:
        found = opened(project.cluster, reach)
    except Failure as failure:
        if failure.finding is Code.OTHER_KUBERNETES:
            raise
        return project, None, failure, False
    try:
        project = teams.narrowed(found.client, project, console, reach.team, job)
        held = holdings.read(found.client, project.cluster, console.clock.now(), job)
    except access.ERRORS as error:
        return project, None, access.explained(error), False
    finally:
        found.client.close()
    return project, held, None, found.is_local


def _instances(project: Project) -> tuple[list[RunningNode] | None, Failure | str]:
    from megatron_eks.ops.aws import session

    try:
        aws = session.open_session(project.cluster.region, os.environ)
        return instances(project.cluster.eks_name, aws.client("ec2")), ""
    except session.ERRORS as error:
        return None, session.explained(error)


def instances(cluster: str, ec2: "BaseClient") -> list[RunningNode]:
    """Return the instances of a cluster's node groups by id, with the group as their pool."""
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": "tag:eks:cluster-name", "Values": [cluster]},
            {"Name": "instance-state-name", "Values": _BILLED},
        ]
    )
    return [
        RunningNode(
            name=each["InstanceId"],
            pool=next((tag["Value"] for tag in each["Tags"] if tag["Key"] == _NODE_GROUP), ""),
            instance_type=each["InstanceType"],
            capacity=_CAPACITY.get(each.get("InstanceLifecycle", ""), "on_demand"),
            since=each["LaunchTime"].astimezone(UTC),
        )
        for page in pages
        for reservation in page["Reservations"]
        for each in reservation["Instances"]
    ]


# "Launching a new EC2 instance: i-0123"; DescribeScalingActivities, of the last six weeks.
_ACTIVITY = re.compile(r"(Launching a new|Terminating) EC2 instance: (i-\w+)")


@dataclass(frozen=True)
class PoolHours:
    """What a pool's nodes were there for."""

    pool: PoolPlan
    nodes: int
    """All that there were."""
    hours: float
    usd_each: float | None
    """Of a node, an hour."""


def node_hours(
    plan: ClusterPlan, pool: PoolPlan, aws: "Aws", since: datetime, now: datetime
) -> PoolHours | None:
    """Ask Auto Scaling and EC2; None where the pool has no node group."""
    group = NodeGroups(plan.eks_name, aws).find(pool.name)
    if group is None:
        return None
    begins, ends = dict[str, datetime](), dict[str, datetime]()
    for launched, instance, activity in _activities(group, aws):
        if launched:
            begins[instance] = activity["StartTime"]
        else:
            ends[instance] = activity["EndTime"]
    found = instances(plan.eks_name, aws.client("ec2"))
    there = {each.name: each.since for each in found if each.pool == group.name}
    begins |= there
    ends |= dict.fromkeys(there, now)
    # One that is gone without an end has no hours.
    lives = [
        hours_between(max(since, begins.get(name, since)), end)
        for name, end in ends.items()
        if end > since
    ]
    each_usd = node_price(pool.instance.name, pool.capacity.kind, plan)
    return PoolHours(pool, len(lives), sum(lives), each_usd)


def _activities(group: NodeGroup, aws: "Aws") -> Iterator[tuple[bool, str, Mapping[str, Any]]]:
    """Yield each launch or end of an instance: whether it is a launch, of which, and the rest."""
    pages = aws.client("autoscaling").get_paginator("describe_scaling_activities")
    for name in group.scaling_groups:
        for page in pages.paginate(AutoScalingGroupName=name):
            for each in page["Activities"]:
                found = _ACTIVITY.match(each.get("Description", ""))
                if found and each["StatusCode"] == "Successful":
                    yield found[1].startswith("L"), found[2], each
