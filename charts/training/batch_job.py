"""A job as a Job of Kubernetes itself, with an index on each pod where there are several."""

from collections.abc import Callable, Mapping

import cdk8s
from constructs import Construct

from megatron_eks.catalog.workloads import WORKLOADS, AnyWorkload
from megatron_eks.charts.pods import add_object
from megatron_eks.charts.training.jobset import add_jobset
from megatron_eks.charts.training.objects import (
    backoff_limit,
    config_map,
    failures,
    indexed,
    job_object,
    meet_at,
    metadata,
    rank_policy,
    template_metadata,
)
from megatron_eks.charts.training.pod import job_pod
from megatron_eks.charts.training.pytorchjob import add_pytorch_job
from megatron_eks.charts.training.trainjob import add_train_job
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.jobs.job import JobPlan

_KIND = WORKLOADS["Job"]


def add_job(scope: Construct, job: JobPlan, platform: PlatformPlan) -> None:
    """Add a Job, whose pods know their index where there are several; ranks also have names."""
    meeting: tuple[str, ...] = ()
    named = {}
    if job.gang:
        _add_service(scope, job, platform)
        rank_policy(scope, job, platform, _KIND)
        # The Service of that name gives each pod one of its own: JOB-INDEX.JOB.
        named = {"subdomain": job.name}
        meeting = meet_at(job, f"{job.name}-0.{job.name}")
    in_place = job.gang and job.restarts > 0
    restart = {"restartPolicy": "OnFailure" if in_place else "Never"}
    spec = {
        **(indexed(job) if job.gang or job.nodes > 1 else {}),
        "backoffLimit": backoff_limit(job),
        **({} if in_place else {"podFailurePolicy": failures(lost_node="Ignore")}),
        "ttlSecondsAfterFinished": job.ttl_seconds,
        **({"activeDeadlineSeconds": job.deadline_seconds} if job.deadline_seconds else {}),
        "template": {
            "metadata": template_metadata(job),
            "spec": {**job_pod(job, platform, meeting), **named, **restart},
        },
    }
    job_object(scope, job, platform, _KIND, spec)


def _add_service(scope: Construct, job: JobPlan, platform: PlatformPlan) -> None:
    spec = {
        "clusterIP": "None",
        # Ranks look for index 0 while it starts.
        "publishNotReadyAddresses": True,
        "selector": {_KIND.job_label: job.name},
    }
    named = metadata(job.name, job, platform)
    add_object(scope, "service", "v1", "Service", named, spec=spec)


_WORKLOADS: Mapping[AnyWorkload, Callable[[Construct, JobPlan, PlatformPlan], None]] = {
    "pytorchjob": add_pytorch_job,
    "jobset": add_jobset,
    "trainjob": add_train_job,
    "job": add_job,
}


class PlannedJob(cdk8s.Chart):
    """One job, alone in its file."""

    def __init__(
        self, scope: Construct, chart_id: str, *, job: JobPlan, platform: PlatformPlan
    ) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        config_map(self, job, platform)
        _WORKLOADS[job.workload](self, job, platform)
