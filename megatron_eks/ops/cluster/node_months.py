"""When the nodes of a pool came and went, by what Auto Scaling keeps for six weeks."""

import re
from dataclasses import dataclass
from datetime import datetime

from megatron_eks.ops.aws.session import Aws
from megatron_eks.ops.cluster.billing import instances
from megatron_eks.ops.cluster.node_groups import NodeGroups
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import PoolPlan
from megatron_eks.plan.cost import node_price
from megatron_eks.plan.spending import hours_between

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


def read(
    plan: ClusterPlan, pool: PoolPlan, aws: Aws, since: datetime, now: datetime
) -> PoolHours | None:
    """Ask Auto Scaling and EC2; None where the pool has no node group."""
    group = NodeGroups(plan.eks_name, aws).find(pool.name)
    if group is None:
        return None
    begins, ends = dict[str, datetime](), dict[str, datetime]()
    pages = aws.client("autoscaling").get_paginator("describe_scaling_activities")
    for name in group.scaling_groups:
        for page in pages.paginate(AutoScalingGroupName=name):
            for each in page["Activities"]:
                found = _ACTIVITY.match(each.get("Description", ""))
                if found and each["StatusCode"] == "Successful":
                    of, at = (
                        (begins, "StartTime") if found[1].startswith("L") else (ends, "EndTime")
                    )
                    of[found[2]] = each[at]
    there = {
        each.name: each.since
        for each in instances(plan.eks_name, aws.client("ec2"))
        if each.pool == group.name
    }
    begins |= there
    lives = _lives(begins, ends, there, since, now)
    each_usd = node_price(pool.instance.name, pool.capacity.kind, plan)
    return PoolHours(pool, len(lives), sum(lives), each_usd)


def _lives(
    begins: dict[str, datetime],
    ends: dict[str, datetime],
    there: dict[str, datetime],
    since: datetime,
    now: datetime,
) -> list[float]:
    """Return the hours of each instance since then; one without an end that is gone has none."""
    found = []
    for name in {*begins, *ends}:
        end = now if name in there else ends.get(name, since)
        if end > since:
            found.append(hours_between(max(since, begins.get(name, since)), end))
    return found
