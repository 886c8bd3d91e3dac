"""`meks plan`: what will exist, what it costs, and whether the jobs fit."""

import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from megatron_eks.catalog.pins import TRAINING_OPERATOR_LAST
from megatron_eks.catalog.pricing import EFS_USD_PER_GIB_MONTH, HOURS_PER_MONTH
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError, Finding, Level
from megatron_eks.config.messages import messages
from megatron_eks.ops.failure import DONE, USAGE, no_such
from megatron_eks.ops.output import count, counted, formatted, table, usd, write_findings
from megatron_eks.ops.planning.plan_jobs import job_details, job_rows, labelled, takes
from megatron_eks.ops.planning.plan_json import job_as_json, plan_as_json
from megatron_eks.plan.cluster.capacity import CapacityPlan
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cost import cluster_cost, job_cost
from megatron_eks.project import Project, job_files, load_project


def run(cluster_file: Path, output: str, today: date, *, job: str | None = None) -> int:
    """Print the plan of a cluster and its jobs, or of one job; return the exit code.

    Raises Failure if no job has that name.
    """
    try:
        project = load_project(cluster_file, today, code=True)
    except ConfigError as error:
        return _refused(error.findings, cluster_file, output)
    if job is None:
        sys.stdout.write(formatted(output, _page(project), lambda: plan_as_json(project)))
    else:
        known = {each.name: each for each in project.jobs}
        if job not in known:
            found = f"no job named {job!r} beside {project.file}"
            raise no_such(Code.JOB_NOT_FOUND, found, job, known)
        wanted = known[job]
        lines = job_details(wanted, project.cluster)
        sys.stdout.write(formatted(output, lines, lambda: job_as_json(wanted, project.cluster)))
    sys.stdout.flush()
    sys.stderr.write(messages((*project.warnings, *project.preview), sys.stderr))
    return DONE


def _refused(findings: Sequence[Finding], cluster_file: Path, output: str) -> int:
    """Say how many jobs fit, where only other jobs are wrong, and then what is wrong."""
    jobs = {each.absolute() for each in job_files(cluster_file)}
    wrong = {Path(each.file).absolute() for each in findings if each.level is Level.ERROR}
    fit = f"{len(jobs - wrong)} of {count(len(jobs), 'job')} fit"
    sys.stderr.write(f"{fit if wrong <= jobs else 'no plan'}: {counted(findings)}\n")
    write_findings(findings, output, sys.stdout)
    return USAGE


def _page(project: Project) -> Iterator[str]:
    yield from _outcome(project)
    yield ""
    if project.jobs:
        yield from job_rows(project.jobs, project.cluster)
        yield ""
    yield from _pools(project.cluster)
    yield from _notes(project.cluster)
    yield ""
    yield "More: meks plan JOB, and of the cluster: meks plan -o yaml"


def _notes(plan: ClusterPlan) -> Iterator[str]:
    # In one line each: some are commands to copy.
    yield from (f"To see to: {note}" for note in plan.notes)
    chosen = [addon.name for addon in plan.addons if addon.version is None]
    if chosen and "Cluster" in plan.stacks:
        yield f"EKS chooses the version of {', '.join(chosen)}."
    if plan.platform.workload == "pytorchjob":
        yield f"The project of pytorchjob ended with {TRAINING_OPERATOR_LAST}: docs/workloads.md"
    if plan.storage.efs:
        yield f"EFS: {EFS_USD_PER_GIB_MONTH:.2f} USD a month for each GiB that it holds, in the US."


def _outcome(project: Project) -> Iterator[str]:
    plan, jobs = project.cluster, project.jobs
    yield f"Cluster {plan.name}: EKS {plan.kubernetes_version} in {plan.region}"
    yield ""
    findings = counted((*project.warnings, *project.preview, *project.allowed))
    yield from labelled("Jobs", f"{len(jobs)} of {len(jobs)} fit; {findings}")
    cost = cluster_cost(plan)
    nodes = count(sum(pool.max_nodes for pool in plan.pools), "GPU node")
    yield from labelled("Idle", f"{_price(cost.idle_usd_per_hour)} without GPU nodes")
    yield from labelled("Full", f"{_price(cost.full_usd_per_hour)} with {nodes}")
    for note in cost.notes:
        yield from labelled("", note)
    timed = [(each, job.name) for job in jobs if (each := job_cost(job, plan))]
    if timed:
        cost_of, name = max(timed, key=lambda each: each[0].hours)
        price = usd(cost_of.usd, digits=0)
        yield from labelled("Longest", f"{name}: {takes(cost_of)}, {price} USD")


def _price(usd_per_hour: float | None) -> str:
    if usd_per_hour is None:
        return "unknown"
    month = usd(usd_per_hour * HOURS_PER_MONTH, digits=0)
    return f"{usd(usd_per_hour)} USD an hour, {month} a month,"


def _pools(plan: ClusterPlan) -> Iterator[str]:
    pools = [
        (
            pool.name,
            pool.instance.name,
            pool.zone,
            f"0-{pool.max_nodes}",
            f"{pool.max_nodes * pool.instance.gpus} x {pool.instance.gpu.name}",
            str(pool.instance.efa_interfaces),
            str(pool.max_pods),
        )
        for pool in plan.pools
    ]
    yield from table(("POOL", "TYPE", "ZONE", "NODES", "GPUS", "EFA/NODE", "MAX PODS"), pools)
    for pool in plan.pools:
        if pool.capacity.kind != "on_demand":
            yield f"{pool.name}: {_capacity(pool.capacity)}"


def _capacity(capacity: CapacityPlan) -> str:
    kind = capacity.kind.replace("_", " ")
    named = capacity.reservation_id or capacity.reservation_group
    reservation = f" {named}" if named else ""
    end = f", until {capacity.ends_at.isoformat(' ', 'minutes')}" if capacity.ends_at else ""
    return f"{kind}{reservation}{end}"
