"""What every command that acts on AWS works with, and what it refuses before it acts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Level
from megatron_eks.ops.aws.session import Aws, open_session
from megatron_eks.ops.aws.stacks import Stacks
from megatron_eks.ops.cluster.node_groups import NodeGroups
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import no_such
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.pools import PoolPlan
from megatron_eks.project import Project


@dataclass(frozen=True)
class Tools:
    """A project, and ways to AWS and to people; tests hand in others."""

    cluster_file: Path
    project: Project
    aws: Aws
    console: Console

    @property
    def plan(self) -> ClusterPlan:
        """The plan of the cluster."""
        return self.project.cluster

    @property
    def stacks(self) -> Stacks:
        """The stacks of the account."""
        return Stacks(self.aws.client("cloudformation"))

    @property
    def node_groups(self) -> NodeGroups:
        """The node groups of the cluster."""
        return NodeGroups(
            self.plan.eks_name,
            self.aws.client("eks"),
            self.aws.client("ec2"),
            self.aws.client("autoscaling"),
        )

    def pool(self, name: str) -> PoolPlan:
        """Return a pool of the cluster file."""
        known = [pool.name for pool in self.plan.pools]
        if name not in known:
            found = f"the cluster file has no pool {name!r}"
            raise no_such(Code.UNKNOWN_POOL, found, name, known)
        return self.plan.pool(name)


def open_tools(
    cluster_file: Path, project: Project, console: Console, environ: Mapping[str, str]
) -> Tools:
    """Open a session in a project's region; raise ConfigError or Failure.

    Values of the documentation stand for nothing real.
    """
    remedy = "write your own, or run `meks init`, which finds your role and address"
    placeholders = [
        replace(finding, remedy=remedy, level=Level.ERROR)
        for finding in project.warnings
        if finding.code is Code.DOCUMENTATION_VALUE
    ]
    if placeholders:
        raise ConfigError(placeholders)
    aws = open_session(project.cluster.region, environ)
    return Tools(cluster_file, project, aws, console)
