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


def rank_policy(scope: Construct, job: JobPlan, platform: PlatformPlan, label: str) -> None:
    """Allow every port between pods with the job's name in a label; torch and NCCL pick theirs.

    The platform's default deny keeps everything else away. It stands before the job, so that it is
    there before the first pod, and its prefix keeps it apart from the platform's own policies.
    """
    resource = cdk8s.ApiObject(
        scope,
        "ranks",
        api_version="networking.k8s.io/v1",
        kind="NetworkPolicy",
        metadata=metadata(f"ranks-of-{job.name}", job, platform),
    )
    ranks = {"matchLabels": {label: job.name}}
    peers = [{"podSelector": ranks}]
    spec = {
        "podSelector": ranks,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers}],
        "egress": [{"to": peers}],
    }
    resource.add_json_patch(cdk8s.JsonPatch.add("/spec", spec))
