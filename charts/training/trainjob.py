"""A job as a TrainJob, which Kubeflow Trainer turns into the JobSet of a runtime beside it."""

import cdk8s
from constructs import Construct

from megatron_eks.catalog.workloads import WORKLOADS
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
    runtime = cdk8s.ApiObject(
        scope,
        "runtime",
        api_version=_KIND.api_version,
        kind=str(_KIND.runtime),
        metadata=metadata(job.name, job, platform),
    )
    runtime.add_json_patch(cdk8s.JsonPatch.add("/spec", {"template": {"spec": spec}}))
    resource = job_object(scope, job, platform, _KIND)
    named = {"apiGroup": _KIND.group, "kind": _KIND.runtime, "name": job.name}
    resource.add_json_patch(cdk8s.JsonPatch.add("/spec", {"runtimeRef": named}))
