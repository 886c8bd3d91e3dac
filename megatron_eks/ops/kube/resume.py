"""Compares a job with the run before it, which may have left a checkpoint in the same directory.

What the run was stays in a ConfigMap, whatever becomes of the job. It has no label of ours: with
one, `meks apply` would prune it.
"""

import hashlib
import json
from collections.abc import Callable

from megatron_eks.config.codes import Code
from megatron_eks.config.job import AnyJob, MegatronRun, TorchRun, TrainingJob
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.failure import Failure
from megatron_eks.plan.cluster import ClusterPlan
from megatron_eks.plan.resume import changes, settings

Saved = Callable[[TrainingJob], bool]
"""From a job to whether its directory holds a checkpoint."""

_SETTINGS = "settings"


def compare(client: Client, plan: ClusterPlan, job: AnyJob, saved: Saved, console: Console) -> None:
    """Say what a job changes of the run before it; raise Failure if its checkpoint cannot load."""
    if not isinstance(job, MegatronRun | TorchRun):
        return
    record = _record(plan, job)
    metadata = record["metadata"]
    found = client.find("v1", "ConfigMap", metadata["name"], metadata["namespace"])
    if found is None:
        return
    differ = [*changes(json.loads(found["data"][_SETTINGS]), job)]
    refused = [each.text for each in differ if not each.loads]
    directory = job.checkpoint.directory
    if refused and saved(job):
        message = f"the checkpoint in {directory} cannot be loaded: {'; '.join(refused)}"
        remedy = "give its values again, or begin a run in another checkpoint.directory"
        raise Failure(Code.RESUME_REFUSED, message, remedy)
    for each in differ:
        if each.loads:
            console.say(f"note: if it goes on from {directory}: {each.text}")


def remember(client: Client, plan: ClusterPlan, job: AnyJob) -> None:
    """Keep what decides how this run can go on."""
    if isinstance(job, MegatronRun | TorchRun):
        client.apply(_record(plan, job))


def _record(plan: ClusterPlan, job: MegatronRun | TorchRun) -> Object:
    directory = job.checkpoint.directory.rstrip("/")
    number = hashlib.sha256(directory.encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"run-before-{number}",
            "namespace": plan.platform.namespace,
            "annotations": {"megatron-eks/checkpoints": directory},
        },
        "data": {_SETTINGS: json.dumps(settings(job), sort_keys=True)},
    }
