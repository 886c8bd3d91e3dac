"""A job as a PyTorchJob, which the training operator turns into pods and Services."""

from functools import cache

import cdk8s
from constructs import Construct

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.training.objects import (
    backoff_limit,
    job_object,
    rank_policy,
    template_metadata,
)
from megatron_eks.charts.training.pod import job_pod
from megatron_eks.plan.cluster.platform import ETCD_PORT, ETCD_SERVICE, PlatformPlan
from megatron_eks.plan.jobs.job import JobPlan, Rendezvous
from megatron_eks.plan.jobs.queue import placement

_KIND = WORKLOADS["PyTorchJob"]
_REPLICAS = "/spec/pytorchReplicaSpecs"

# What the operator and torchrun call the second version of etcd's rendezvous.
_BACKENDS = {"c10d": "c10d", "etcd": "etcd-v2"}


def add_pytorch_job(scope: Construct, job: JobPlan, platform: PlatformPlan) -> None:
    """Add the object, with a master where ranks are known beforehand."""
    rank_policy(scope, job, platform, _KIND)
    resource = job_object(scope, job, platform, _KIND, _spec(job, platform))
    place = placement(job)
    grouped = place is not None and kueue.GROUP_ANNOTATION in place.annotations
    if job.workers and not job.rendezvous:
        resource.add_json_patch(*_worker(job.workers, grouped))


def _spec(job: JobPlan, platform: PlatformPlan) -> dict[str, object]:
    """Return the specification with the first role alone; `_worker` copies it."""
    role = "worker" if job.rendezvous else "master"
    replica = {
        "replicas": job.workers if job.rendezvous else 1,
        # A container that fails restarts in its pod, which keeps image, address and files.
        "restartPolicy": "OnFailure" if job.restarts else "Never",
        "template": {
            "metadata": template_metadata(job, role=role),
            "spec": job_pod(job, platform),
        },
    }
    return {
        # A text, because it may also be "auto", which starts a process per CPU where no GPU shows.
        "nprocPerNode": str(job.processes_per_node),
        "runPolicy": {
            # The default lets a failed job keep its GPUs; finished pods stay for their logs.
            "cleanPodPolicy": "Running",
            "backoffLimit": backoff_limit(job),
            "ttlSecondsAfterFinished": job.ttl_seconds,
            **({"activeDeadlineSeconds": job.deadline_seconds} if job.deadline_seconds else {}),
        },
        **({"elasticPolicy": _elastic(job.name, job.rendezvous)} if job.rendezvous else {}),
        "pytorchReplicaSpecs": {role.capitalize(): replica},
    }


def _elastic(name: str, rendezvous: Rendezvous) -> dict[str, object]:
    """Return how ranks meet; without metrics, which would scale a job by the CPUs of its pods."""
    policy: dict[str, object] = {
        "rdzvBackend": _BACKENDS[rendezvous.backend],
        "rdzvId": name,
        "minReplicas": rendezvous.min_nodes,
        "maxReplicas": rendezvous.max_nodes,
        "maxRestarts": rendezvous.max_restarts,
    }
    if rendezvous.backend == "etcd":
        policy |= {"rdzvHost": ETCD_SERVICE, "rdzvPort": ETCD_PORT}
    return policy


@cache
def _worker(replicas: int, grouped: bool) -> tuple[cdk8s.JsonPatch, ...]:  # noqa: FBT001 -- cached
    """Make the workers the master's copy: they cannot differ, and 10 kB go to jsii but once."""
    worker = f"{_REPLICAS}/Worker"
    metadata = f"{worker}/template/metadata"
    offset = f"{metadata}/annotations/{kueue.OFFSET_ANNOTATION.replace('/', '~1')}"
    return (
        cdk8s.JsonPatch.copy(f"{_REPLICAS}/Master", worker),
        cdk8s.JsonPatch.replace(f"{worker}/replicas", replicas),
        cdk8s.JsonPatch.replace(f"{metadata}/labels/role", "worker"),
        # In a group Kueue numbers workers from 1, as behind a leader; the operator does from 0.
        *((cdk8s.JsonPatch.add(offset, "-1"),) if grouped else ()),
    )
