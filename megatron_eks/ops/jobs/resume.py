"""Compares a job with the run before it, which may have left a checkpoint in the same directory.

What the run was stays in a ConfigMap, whatever becomes of the job. It has no label of ours: with
one, `meks apply` would prune it.
"""

import hashlib
import json
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, warning
from megatron_eks.config.job import AnyJob, MegatronRun, TorchRun
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import submission
from megatron_eks.ops.opening import Opened
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs.resume import Change, changes, settings

_SETTINGS = "settings"
_REMEDY = "give its values again, or begin a run in another checkpoint.directory"
_AS_MEANT = "nothing, if this is meant"


def compare(plan: ClusterPlan, job: AnyJob, on: Opened) -> None:
    """Say what a job changes of the run before it; raise Failure if its checkpoint cannot load."""
    if not isinstance(job, MegatronRun | TorchRun):
        return
    differ = _changes(on.client, plan, job)
    refused = [each.text for each in differ if not each.loads]
    directory = job.checkpoint.directory
    if refused and submission.checkpoint_in(on, job):
        message = f"the checkpoint in {directory} cannot be loaded: {'; '.join(refused)}"
        raise Failure(Code.RESUME_REFUSED, message, _REMEDY)
    for each in differ:
        if each.loads:
            on.console.say(f"note: if it goes on from {directory}: {each.text}")


def findings(client: Client, plan: ClusterPlan, job: AnyJob) -> Iterator[Finding]:
    """Yield a warning for each change, whether or not the run before has saved anything."""
    if not isinstance(job, MegatronRun | TorchRun):
        return
    for each in _changes(client, plan, job):
        text = f"the run before saved to {job.checkpoint.directory} too: {each.text}"
        path = tuple(each.key.split(".")) if "." in each.key else ("extra_args",)
        remedy = _AS_MEANT if each.loads else _REMEDY
        yield warning(Code.RESUME_DIFFERS, path, text, remedy)


def remember(client: Client, plan: ClusterPlan, job: AnyJob) -> None:
    """Keep what decides how this run can go on."""
    if isinstance(job, MegatronRun | TorchRun):
        client.apply(_record(plan, job))


def _changes(client: Client, plan: ClusterPlan, job: MegatronRun | TorchRun) -> list[Change]:
    metadata = _record(plan, job)["metadata"]
    found = client.find("v1", "ConfigMap", metadata["name"], metadata["namespace"])
    return [] if found is None else [*changes(json.loads(found["data"][_SETTINGS]), job)]


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
