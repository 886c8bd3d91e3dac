"""A job as a TrainJob, which Kubeflow Trainer turns into the JobSet of a runtime beside it."""

from constructs import Construct

from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.pods import add_object
from megatron_eks.charts.training.jobset import set_spec
from megatron_eks.charts.training.objects import job_object, metadata, rank_policy
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.jobs.job import JobPlan

_KIND = WORKLOADS["TrainJob"]


def add_train_job(scope: Construct, job: JobPlan, platform: PlatformPlan) -> None:
    """Add the runtime, then the object.

    A runtime for each job: what one of many jobs could change of it (kubeflow/trainer v2.3.0,
    PodSpecPatch) are neither its restarts nor its priority, network and time to live.
    """
    rank_policy(scope, job, platform, _KIND)
    spec = set_spec(job, platform, **{_KIND.job_label: job.name})
    of_job, runs = metadata(job.name, job, platform), {"template": {"spec": spec}}
    add_object(scope, "runtime", _KIND.api_version, str(_KIND.runtime), of_job, spec=runs)
    named = {"apiGroup": _KIND.group, "kind": _KIND.runtime, "name": job.name}
    job_object(scope, job, platform, _KIND, {"runtimeRef": named})
