"""The object of a job, whatever its kind, before its specification is patched in."""

import cdk8s
from constructs import Construct

from megatron_eks.config.outputs import PREVIEW_ANNOTATION
from megatron_eks.plan.job import JobPlan
from megatron_eks.plan.platform import PlatformPlan


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
            labels={"app": job.app},
            annotations={PREVIEW_ANNOTATION: "true"} if job.image.preview else None,
        ),
    )
