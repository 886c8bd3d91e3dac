"""What the objects of a job have in common, and the one that runs its pods."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import cdk8s
from constructs import Construct

from megatron_eks.config.outputs import CLUSTER_ANNOTATION, PREVIEW_ANNOTATION
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.jobs.job import CONFIG_DIRECTORY, JOB_LABEL, JobPlan


def metadata(
    name: str, job: JobPlan, platform: PlatformPlan, **annotations: str
) -> cdk8s.ApiObjectMetadata:
    """Return the metadata of a job's object, by which `meks cancel` finds those beside it.

    Pods do not carry the cluster's name, so that none starts again for it.
    """
    return cdk8s.ApiObjectMetadata(
        name=name,
        namespace=platform.namespace,
        labels={"app": job.app, JOB_LABEL: job.name},
        annotations={**annotations, CLUSTER_ANNOTATION: platform.cluster},
    )


def job_object(
    scope: Construct, job: JobPlan, platform: PlatformPlan, *, api_version: str, kind: str
) -> cdk8s.ApiObject:
    """Return it with the job's name and labels, marked where the image is not known yet."""
    preview = {PREVIEW_ANNOTATION: "true"} if job.image.preview else {}
    return cdk8s.ApiObject(
        scope,
        "job",
        api_version=api_version,
        kind=kind,
        metadata=metadata(job.name, job, platform, **preview),
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


_VOLUME = "config"

Entries = list[Mapping[str, Any]]


def config_map(scope: Construct, job: JobPlan, platform: PlatformPlan) -> None:
    """Add the ConfigMap of a job that has files."""
    if not job.files:
        return
    resource = cdk8s.ApiObject(
        scope,
        _VOLUME,
        api_version="v1",
        kind="ConfigMap",
        metadata=metadata(_files_name(job), job, platform),
    )
    texts = {name: content for name, content in job.files.items() if isinstance(content, str)}
    others = {
        name: base64.b64encode(content).decode()
        for name, content in job.files.items()
        if isinstance(content, bytes)
    }
    parts = {"/data": texts, "/binaryData": others}
    resource.add_json_patch(
        *(cdk8s.JsonPatch.add(path, part) for path, part in parts.items() if part),
        cdk8s.JsonPatch.add("/immutable", True),  # noqa: FBT003 -- a JSON value
    )


def file_volumes(job: JobPlan) -> Entries:
    """Return the volume of the files."""
    return [{"name": _VOLUME, "configMap": {"name": _files_name(job)}}] if job.files else []


def file_mounts(job: JobPlan) -> Entries:
    """Return where the container sees them."""
    mount = {"name": _VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True}
    return [mount] if job.files else []


def _files_name(job: JobPlan) -> str:
    """Name the content, so that a job that runs keeps what it was started with."""
    content = repr(sorted(job.files.items()))
    return f"{job.name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
