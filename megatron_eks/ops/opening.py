"""How commands open the account and the API server of a cluster, and act there."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from megatron_eks.ops.console import Console, SystemClock

if TYPE_CHECKING:
    from megatron_eks.kubernetes.client import Client
    from megatron_eks.ops.aws.tools import Tools
    from megatron_eks.ops.kube.access import Access
    from megatron_eks.ops.programs import Place
    from megatron_eks.plan.cluster.cluster import ClusterPlan
    from megatron_eks.project import Project


@dataclass(frozen=True)
class Reach:
    """The cluster file, and how to reach the API server of the cluster."""

    cluster: Path
    kubeconfig: Path | None = None
    """None: the one of the environment."""
    context: str | None = None
    """None: its current one."""
    team: str | None = None
    """None: that of the job, or all."""


def today() -> date:
    """Return the date, which decides what is still supported."""
    return datetime.now(tz=UTC).date()


class Opened(NamedTuple):
    """A cluster that a command acts in."""

    access: "Access"
    project: "Project"
    console: Console

    @property
    def client(self) -> "Client":
        """What asks its API server."""
        return self.access.client

    @property
    def plan(self) -> "ClusterPlan":
        """What it was made by."""
        return self.project.cluster


def console_here(*, yes: bool = False) -> Console:
    """Return the terminal, or what stands in its place."""
    return Console(sys.stdin, sys.stdout, sys.stderr, SystemClock(), yes=yes)


def load(cluster: Path, console: Console, *, makes: bool = False) -> "Project":
    """Read a project; what is wrong with its files stops a command that makes something alone.

    No GPU hour is lost by looking, and many are where nothing can be ended.
    """
    from megatron_eks.config.errors import Level
    from megatron_eks.project import load_project

    project = load_project(cluster, today(), makes=makes)
    console.report(replace(each, level=Level.WARNING) for each in project.errors)
    return project


def on_aws(
    cluster: Path, act: "Callable[[Tools], int]", *, yes: bool = False, makes: bool = False
) -> int:
    """Open the cluster's account and act in it; `makes` as `load` has it."""
    from megatron_eks.ops.aws.tools import open_tools

    def do(console: Console) -> int:
        return act(open_tools(cluster, load(cluster, console, makes=makes), console, os.environ))

    return with_console(do, yes=yes)


def with_console(act: Callable[[Console], int], *, yes: bool = False) -> int:
    """Act for who sits at the terminal; what boto3 raises becomes a plain failure."""
    from megatron_eks.ops.aws.session import explaining

    with explaining():
        return act(console_here(yes=yes))


def opened(plan: "ClusterPlan", reach: Reach) -> "Access":
    """Open the way to the API server of a cluster. Raises Failure if there is none."""
    from megatron_eks.ops.kube import access

    try:
        return access.open_access(plan, reach.kubeconfig, reach.context, os.environ, Path.home())
    except access.ERRORS as error:
        raise access.explained(error) from error


def on_cluster(
    reach: Reach,
    act: Callable[[Opened], int],
    project: "Project | None" = None,
    *,
    yes: bool = False,
    makes: bool = False,
    job: str | None = None,
    one: bool = False,
) -> int:
    """Open the configured cluster and act in it; what it refuses becomes a plain failure.

    Of a cluster with teams it is seen as the team of a `job` has it. `one` says that a command
    without a job needs to be told the team.
    """
    from megatron_eks.ops.kube import access, teams

    console = console_here(yes=yes)
    project = project or load(reach.cluster, console, makes=makes)
    if one and job is None:
        teams.checked(project, reach.team, one=True)
    found = opened(project.cluster, reach)
    try:
        narrowed = teams.narrowed(found.client, project, console, reach.team, job)
        return act(Opened(found, narrowed, console))
    except access.ERRORS as error:
        raise access.explained(error) from error
    finally:
        found.client.close()


def at(
    reach: Reach,
    project: "Project | None",
    claim: str | None,
    act: "Callable[[Place, Console], int]",
    *,
    yes: bool = False,
    job: str | None = None,
) -> int:
    """Act where the file system of a claim is mounted, or here."""
    from megatron_eks.ops.data.shared_pod import SharedPod
    from megatron_eks.ops.programs import Here, environment_for

    if claim is None:
        here = Here(environment_for(project.cluster.region if project else None))
        return act(here, console_here(yes=yes))

    def there(on: Opened) -> int:
        return act(SharedPod(*on, claim), on.console)

    return on_cluster(reach, there, project, yes=yes, job=job, one=True)
