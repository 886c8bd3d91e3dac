"""What the objects of a job have in common, and the one that runs its pods."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import cdk8s
from constructs import Construct

from megatron_eks.catalog.workloads import FINAL_EXIT_CODES, WorkloadKind
from megatron_eks.charts.pods import add_object, scraped_at
from megatron_eks.config.outputs import CLUSTER_ANNOTATION, PREVIEW_ANNOTATION
from megatron_eks.plan.cluster.observability import METRICS_PORT
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.jobs.job import CONFIG_DIRECTORY, JOB_LABEL, MASTER_PORT, JobPlan
from megatron_eks.plan.jobs.queue import placement

# The training operator looks for the container of this name.
CONTAINER = "pytorch"


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
    scope: Construct, job: JobPlan, platform: PlatformPlan, kind: WorkloadKind, spec: object
) -> cdk8s.ApiObject:
    """Add it with the job's name and labels, marked where the image is not known yet."""
    preview = {PREVIEW_ANNOTATION: "true"} if job.image.preview else {}
    named = metadata(job.name, job, platform, **preview)
    resource = add_object(scope, "job", kind.api_version, kind.kind, named, spec=spec)
    for label, value in job.queue_labels.items():
        resource.metadata.add_label(label, value)
    return resource


def template_metadata(job: JobPlan, **labels: str) -> dict[str, object]:
    """Return the metadata of a job's pods, with what Kueue and a Prometheus read of them."""
    place = placement(job)
    annotations = dict(place.annotations) if place else {}
    annotations |= scraped_at(METRICS_PORT) if job.is_scraped else {}
    found: dict[str, object] = {"labels": {"app": job.app, **labels}}
    return {**found, "annotations": annotations} if annotations else found


def backoff_limit(job: JobPlan) -> int:
    """Return how many failures, summed over all pods, end a job.

    One restart of all ranks restarts every container, and a job has failed when their sum reaches
    the limit (kubeflow/trainer v1.9.4, pkg/core/job.go; Kubernetes, pkg/controller/job). Of pods
    that fail alone, one more than the limit ends it.
    """
    return job.restarts * job.most_nodes + job.gang


def indexed(job: JobPlan) -> dict[str, object]:
    """Return what makes a Job start all pods at once and number them."""
    return {"completionMode": "Indexed", "completions": job.nodes, "parallelism": job.nodes}


def failures(*, lost_node: Literal["Ignore", "FailJob"]) -> dict[str, object]:
    """Give up where another try cannot help; `lost_node` is what pods do that lost theirs."""
    codes = {"containerName": CONTAINER, "operator": "In", "values": [*FINAL_EXIT_CODES]}
    lost = {"type": "DisruptionTarget", "status": "True"}
    return {
        "rules": [
            {"action": "FailJob", "onExitCodes": codes},
            {"action": lost_node, "onPodConditions": [lost]},
        ]
    }


def meet_at(job: JobPlan, address: str) -> tuple[str, ...]:
    """Tell torchrun what the training operator would: index 0 is the master, at an address.

    Kubernetes replaces the variable, which it sets on each pod of an Indexed Job.
    """
    return (
        f"--nnodes={job.nodes}",
        f"--nproc-per-node={job.processes_per_node}",
        "--node-rank=$(JOB_COMPLETION_INDEX)",
        f"--master-addr={address}",
        f"--master-port={MASTER_PORT}",
    )


def rank_policy(scope: Construct, job: JobPlan, platform: PlatformPlan, kind: WorkloadKind) -> None:
    """Allow every port between the ranks of a job; torch and NCCL pick theirs.

    The platform's default deny keeps everything else away. It stands before the job, so that it is
    there before the first pod, and its prefix keeps it apart from the platform's own policies.
    """
    ranks = {"matchLabels": {kind.job_label: job.name}}
    peers = [{"podSelector": ranks}]
    spec = {
        "podSelector": ranks,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers}],
        "egress": [{"to": peers}],
    }
    named = metadata(f"ranks-of-{job.name}", job, platform)
    add_object(scope, "ranks", "networking.k8s.io/v1", "NetworkPolicy", named, spec=spec)


_VOLUME = "config"

Entries = list[Mapping[str, Any]]


def config_map(scope: Construct, job: JobPlan, platform: PlatformPlan) -> None:
    """Add the ConfigMap of a job that has files."""
    if not job.files:
        return
    texts = {name: content for name, content in job.files.items() if isinstance(content, str)}
    others = {
        name: base64.b64encode(content).decode()
        for name, content in job.files.items()
        if isinstance(content, bytes)
    }
    parts = {"data": texts, "binaryData": others, "immutable": True}
    named = metadata(_files_name(job), job, platform)
    filled = {name: part for name, part in parts.items() if part}
    add_object(scope, _VOLUME, "v1", "ConfigMap", named, **filled)


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
