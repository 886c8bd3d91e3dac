"""What every command that acts on AWS is given, and what it refuses before it acts."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from megatron_eks.config.errors import Code, ConfigError, Level
from megatron_eks.ops.aws.node_groups import NodeGroups
from megatron_eks.ops.aws.stacks import Stacks
from megatron_eks.ops.failure import NOT_FOUND, Failure
from megatron_eks.project import load_project

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    from megatron_eks.ops.aws.console import Console
    from megatron_eks.ops.aws.session import Aws
    from megatron_eks.plan.cluster import ClusterPlan
    from megatron_eks.plan.pools import PoolPlan
    from megatron_eks.project import Project


@dataclass(frozen=True)
class Tools:
    """Ways to AWS and to people; tests hand in others."""

    aws: "Aws"
    console: "Console"

    @property
    def stacks(self) -> Stacks:
        """The stacks of the account."""
        return Stacks(self.aws.client("cloudformation"))

    def node_groups(self, plan: "ClusterPlan") -> NodeGroups:
        """Return the node groups of a cluster."""
        return NodeGroups(plan.eks_name, self.aws.client("eks"), self.aws.client("autoscaling"))


def load_deployable(cluster_file: "Path", today: "date") -> "Project":
    """Read a project that stands for something real; refuse values of the documentation."""
    project = load_project(cluster_file, today)
    placeholders = [
        finding for finding in project.warnings if finding.code is Code.DOCUMENTATION_VALUE
    ]
    if placeholders:
        raise ConfigError(
            finding.__class__(
                finding.code,
                finding.path,
                finding.found,
                "write your own: meks init finds your role and address",
                Level.ERROR,
                finding.file,
                finding.line,
            )
            for finding in placeholders
        )
    return project


def find_pool(plan: "ClusterPlan", name: str) -> "PoolPlan":
    """Return a pool of the cluster file."""
    known = [pool.name for pool in plan.pools]
    if name not in known:
        remedy = f"known: {', '.join(known)}"
        found = f"the cluster file has no pool {name!r}"
        raise Failure(Code.UNKNOWN_POOL, found, remedy, exit_code=NOT_FOUND)
    return plan.pool(name)
