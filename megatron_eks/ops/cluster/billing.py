"""How `meks cost` asks the API server and EC2, each as far as it answers."""

import os
from datetime import UTC
from typing import TYPE_CHECKING

from megatron_eks.config.codes import Code
from megatron_eks.ops.cluster import cost
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import holdings
from megatron_eks.ops.kube import access, teams
from megatron_eks.ops.opening import Reach, console_here, load, opened
from megatron_eks.plan.cluster.capacity import CapacityKind
from megatron_eks.plan.spending import RunningNode
from megatron_eks.project import Project

if TYPE_CHECKING:
    from botocore.client import BaseClient

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
