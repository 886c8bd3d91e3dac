"""What the objects of a job have in common, and the one that runs its pods."""

import cdk8s
from constructs import Construct

from megatron_eks.config.outputs import PREVIEW_ANNOTATION
from megatron_eks.plan.job import JOB_LABEL, JobPlan
from megatron_eks.plan.platform import PlatformPlan


def metadata(name: str, job: JobPlan, platform: PlatformPlan) -> cdk8s.ApiObjectMetadata:
    """Return the metadata of an object beside a job, by which `meks cancel` finds it."""
    return cdk8s.ApiObjectMetadata(
        name=name, namespace=platform.namespace, labels={"app": job.app, JOB_LABEL: job.name}
    )


def job_object(
    scope: Construct, job: JobPlan, platform: PlatformPlan, *, api_version: str, kind: str
) -> cdk8s.ApiObject:
    """Return it with the job's name and labels, marked where the image is not known yet."""
    return cdk8s.ApiObject(
        scope,
        "job",
        api_version=api_version,
        kind=kind,
        metadata=cdk8s.ApiObjectMetadata(
            name=job.name,
            namespace=platform.namespace,
            labels={"app": job.app, JOB_LABEL: job.name},
            annotations={PREVIEW_ANNOTATION: "true"} if job.image.preview else None,
        ),
    )
