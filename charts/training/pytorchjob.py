"""A training job as a PyTorchJob, which the training operator turns into pods and Services."""

from functools import cache

import cdk8s
from constructs import Construct

from charts.training.pod import training_pod
from megatron_eks.config.outputs import PREVIEW_ANNOTATION
from megatron_eks.plan.job import TRAINING_APP, JobPlan
from megatron_eks.plan.platform import PlatformPlan


class PyTorchJob(cdk8s.Chart):
    """One job, alone in its file."""

    def __init__(
        self, scope: Construct, chart_id: str, *, job: JobPlan, platform: PlatformPlan
    ) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        resource = cdk8s.ApiObject(
            self,
            "job",
            api_version="kubeflow.org/v1",
            kind="PyTorchJob",
            metadata=cdk8s.ApiObjectMetadata(
                name=job.name,
                namespace=platform.namespace,
                labels={"app": TRAINING_APP},
                annotations={PREVIEW_ANNOTATION: "true"} if job.image.preview else None,
            ),
        )
        workers = _worker(job.workers) if job.workers else ()
        resource.add_json_patch(cdk8s.JsonPatch.add("/spec", _spec(job, platform)), *workers)


def _spec(job: JobPlan, platform: PlatformPlan) -> dict[str, object]:
    """Return the specification with the master alone; `_worker` copies it."""
    return {
        # A text, because it may also be "auto", which starts a process per CPU where no GPU shows.
        "nprocPerNode": str(job.processes_per_node),
        "runPolicy": {
            # The default lets a failed job keep its GPUs; finished pods stay for their logs.
            "cleanPodPolicy": "Running",
            "backoffLimit": job.backoff_limit,
            "ttlSecondsAfterFinished": job.ttl_seconds,
        },
        "pytorchReplicaSpecs": {
            "Master": {
                "replicas": 1,
                # A container that fails restarts in its pod, which keeps image, address and files.
                "restartPolicy": "OnFailure",
                "template": training_pod(job, platform),
            }
        },
    }


@cache
def _worker(replicas: int) -> tuple[cdk8s.JsonPatch, ...]:
    """Make the workers the master's copy: they cannot differ, and 10 kB go to jsii but once."""
    worker = "/spec/pytorchReplicaSpecs/Worker"
    return (
        cdk8s.JsonPatch.copy("/spec/pytorchReplicaSpecs/Master", worker),
        cdk8s.JsonPatch.replace(f"{worker}/replicas", replicas),
        cdk8s.JsonPatch.replace(f"{worker}/template/metadata/labels/role", "worker"),
    )
