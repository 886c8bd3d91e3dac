"""Every kind of job: how it is checked, and how it is planned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.errors import Findings, has_errors
from megatron_eks.config.job import AnyJob, MegatronRun, Run
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.data_access import check_exported, check_s3
from megatron_eks.plan.cluster.teams import check_team
from megatron_eks.plan.jobs import convert, data_prep, fetch, megatron, nccl, pytorch, torchrun
from megatron_eks.plan.jobs.checkpoints import check_window, save_interval
from megatron_eks.plan.jobs.job import JobPlan, LateFiles
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.pods import Images
from megatron_eks.plan.jobs.training import changed
from megatron_eks.plan.jobs.weights import check_sources

# Each takes its own kind's model, which no type of a table can say.
Check = Callable[[Any, ClusterConfig], Findings]
Plan = Callable[[Any, ClusterPlan, Images], JobPlan]

KINDS: Mapping[str, tuple[Check, Plan]] = {
    "megatron": (megatron.check, megatron.plan),
    "megatron_bridge": (megatron.check_bridge, megatron.plan_bridge),
    "fsdp": (pytorch.check, pytorch.plan),
    "ddp": (pytorch.check_ddp, pytorch.plan),
    "torchrun": (torchrun.check, torchrun.plan),
    "data_prep": (data_prep.check, data_prep.plan),
    "fetch": (fetch.check, fetch.plan),
    "convert_checkpoint": (convert.check, convert.plan),
    "nccl_test": (nccl.check, nccl.plan),
}
"""What is done with the job files of each kind."""


def check_job(job: AnyJob, cluster: ClusterConfig) -> Findings:
    """Yield everything wrong with a job on its cluster, errors and warnings."""
    yield from check_team(job, cluster)
    check, _ = KINDS[job.kind]
    yield from check(job, cluster)
    yield from check_s3(job)
    yield from check_exported(job, cluster)


def check_among(
    job: AnyJob, cluster: ClusterConfig | None, jobs: Sequence[AnyJob], today: date
) -> Findings:
    """Yield everything wrong with a job among others, as far as its cluster is known."""
    jobs = [each for each in jobs if each.team == job.team]
    yield from check_sources(job, jobs)
    if cluster is None:
        return
    found = list(check_job(job, cluster))
    yield from found
    if isinstance(job, MegatronRun) and not has_errors(found):
        yield from check_window(job, cluster, today)


def plan_job(
    job: AnyJob,
    cluster: ClusterPlan,
    images: Images,
    shipped: Callable[[], Mapping[str, str | bytes]] | None = None,
) -> JobPlan:
    """Plan a job that has passed the checks; the files that travel with it are read later."""
    cluster = cluster.of_team(job.team)
    if isinstance(job, Run):
        instance, lustre = cluster.pool(job.pool).instance, cluster.storage.lustre
        interval = save_interval(job, model_shape(job.model), instance, lustre)
        job = changed(job, "checkpoint", interval=interval)
    plan = KINDS[job.kind][1](job, cluster, images)
    if shipped is None:
        return plan
    return replace(plan, files=LateFiles(lambda: {**plan.files, **shipped()}))
