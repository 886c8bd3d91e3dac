"""What every command that acts on AWS works with, who acts, and what is refused before."""

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Level
from megatron_eks.ops.aws.session import Aws, if_there, open_session
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
        return NodeGroups(self.plan.eks_name, self.aws)

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


_SSO_ROLE = "AWSReservedSSO_"
_ADDRESS = "https://checkip.amazonaws.com"
_ADDRESS_SECONDS = 5
_LONGEST_ADDRESS = 64


def caller_role(aws: Aws) -> str | None:
    """Return the ARN of the role that the caller has assumed, with its path where IAM tells it.

    None for a user or the root of an account: neither is what administers a cluster here.
    """
    arn = str(aws.client("sts").get_caller_identity()["Arn"])
    partition, account, rest = arn.split(":")[1], arn.split(":")[4], arn.split(":", 5)[5]
    if not rest.startswith("assumed-role/"):
        return None
    name = rest.split("/")[1]
    get_role = aws.client("iam").get_role
    found = if_there(get_role, *("AccessDenied", "NoSuchEntity"), RoleName=name)
    if found:
        return str(found["Role"]["Arn"])
    # The name of a session's role has lost its path; roles of Identity Center always have one.
    path = "aws-reserved/sso.amazonaws.com/" if name.startswith(_SSO_ROLE) else ""
    return f"arn:{partition}:iam::{account}:role/{path}{name}"


def public_address() -> str:
    """Return the address under which the internet sees this machine. Raises OSError."""
    with urllib.request.urlopen(_ADDRESS, timeout=_ADDRESS_SECONDS) as answer:
        return str(answer.read(_LONGEST_ADDRESS).decode("ascii", "replace"))
