"""Whose part of a shared cluster a command is about, and what its caller may see."""

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import TypeVar

from megatron_eks.config.codes import Code
from megatron_eks.config.outputs import team_key
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import USAGE, Failure, no_such
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.project import Project

_Found = TypeVar("_Found")
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def of_team(project: Project, team: str | None) -> Project:
    """Return a project as a team has it; of none, as the administrators have it."""
    if team is None:
        return project
    cluster = project.cluster.of_team(team)
    platform = replace(cluster.platform, namespaces=(cluster.platform.namespace,))
    own = None if platform.first else team
    role = project.outputs.roles.get(f"JobRoleArn{team_key(own)}")
    outputs = replace(project.outputs, job_role=role)
    return replace(project, cluster=replace(cluster, platform=platform), outputs=outputs)


def checked(project: Project, team: str | None, *, one: bool = False) -> Project:
    """Return a project as a team has it that a user named, or nobody where `one` is not needed."""
    names = [each.name for each in project.cluster.teams] if project.cluster.is_shared else []
    if team is not None and team not in names:
        found = f"the cluster file has no team {team!r}"
        raise no_such(Code.JOB_TEAM, found, team, names)
    if team is None and one and names:
        found, remedy = "whose it is, nobody says", f"add --team {' or --team '.join(names)}"
        raise Failure(Code.JOB_TEAM, found, remedy, exit_code=USAGE)
    return of_team(project, team)


def narrowed(
    client: Client, project: Project, console: Console | None, team: str | None, job: str | None
) -> Project:
    """Return a project as the team has it that is named or has a job, else all that one may see."""
    plan = project.cluster
    if team is not None or not plan.is_shared:
        return checked(project, team)
    known = next((each for each in project.jobs if each.name == job), None)
    if known is not None:
        return of_team(project, known.team)
    seen = [each for each in plan.platform.namespaces if _may_see(client, each)]
    owners = {each.namespace: each.name for each in plan.teams}
    if job is not None:
        there = (each for each in seen if jobs.find(client, each, job) is not None)
        return of_team(project, owners.get(next(there, "")))
    hidden = [each for each in plan.platform.namespaces if each not in seen]
    if hidden and console is not None:
        console.say(f"note: not shown, as your role may not see them: {', '.join(hidden)}")
    if not seen or not hidden:
        return project
    first = plan if plan.platform.namespace in seen else plan.of_team(owners[seen[0]])
    platform = replace(first.platform, namespaces=tuple(seen))
    return replace(project, cluster=replace(first, platform=platform))


def _may_see(client: Client, namespace: str) -> bool:
    attributes = {"namespace": namespace, "verb": "list", "resource": "pods"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool(client.request("POST", _REVIEWS, review)["status"]["allowed"])


def seen(plan: ClusterPlan, look: Callable[[], _Found], otherwise: _Found) -> _Found:
    """Return what a request finds, and something else where people of a team may not look."""
    try:
        return look()
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN or not plan.is_shared:
            raise
    return otherwise


def everywhere(
    client: Client, plan: ClusterPlan, version: str, kind: str, labels: str = ""
) -> list[Object]:
    """Return all objects of a kind; of the plan's namespaces where one may see no others."""
    found = seen(plan, lambda: client.list(version, kind, labels=labels), None)
    return of_jobs(client, plan, version, kind, labels) if found is None else found


def of_jobs(
    client: Client, plan: ClusterPlan, version: str, kind: str, labels: str = ""
) -> list[Object]:
    """Return all objects of a kind in the namespaces of jobs."""
    spaces = plan.platform.namespaces
    return [each for space in spaces for each in client.list(version, kind, space, labels=labels)]


def everybody(client: Client, plan: ClusterPlan) -> list[RunningJob]:
    """Return the jobs of all namespaces of the plan."""
    return [job for each in plan.platform.namespaces for job in jobs.everything(client, each)]
