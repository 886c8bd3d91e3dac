"""`meks cancel`: ends a job, and returns when its nodes are free."""

from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import Client
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.failure import DONE, FAILED, Failure
from megatron_eks.ops.jobs.status import ranks_of, summary
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.ops.output import count
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.jobs.job import JOB_LABEL

_POLL_SECONDS = 1
_BESIDE = [("v1", "ConfigMap"), ("v1", "Service"), ("networking.k8s.io/v1", "NetworkPolicy")]
_BESIDE += [(each.api_version, each.runtime) for each in WORKLOADS.values() if each.runtime]


def run(client: Client, plan: ClusterPlan, name: str, seconds: float, console: Console) -> int:
    """Ask, delete a job with what belongs to it, and wait until its pods are gone."""
    namespace = plan.platform.namespace
    job = jobs.get(client, namespace, name)
    ranks = ranks_of(client, job)
    if "deletionTimestamp" not in job.manifest["metadata"]:
        console.say(summary(job, ranks))
        if any(rank.runs for rank in ranks):
            grace = max(spec.get("terminationGracePeriodSeconds", 30) for _, spec in job.pod_specs)
            last = "for a last checkpoint, where the program writes one"
            console.say(f"its ranks get SIGTERM, and {duration(grace)} to end: {last}")
        if not console.confirm(f"Delete {job.kind} {name}?"):
            console.say("nothing was changed")
            return FAILED
        jobs.delete(client, job)
    labels = f"{JOB_LABEL}={name}"
    for version, kind in _BESIDE:
        for each in client.list(version, kind, namespace, labels=labels, missing_ok=True):
            client.delete(version, kind, each["metadata"]["name"], namespace, missing_ok=True)
    wait_until_gone(client, job, seconds, console)
    console.say(f"{name} and its pods are gone; checkpoints and logs stay on the file system")
    return DONE


def wait_until_gone(client: Client, job: RunningJob, seconds: float, console: Console) -> None:
    """Return when no pod of a job is left; raise Failure with those that are."""
    left: list[str] = []

    def gone() -> bool:
        pods = jobs.pods_of(client, job)
        if is_gone := jobs.is_gone(client, job):
            for pod in pods:
                # The garbage collector learns of new kinds, such as PyTorchJob, every 30 s only.
                if "deletionTimestamp" not in pod["metadata"]:
                    place = ("v1", "Pod", pod["metadata"]["name"], job.namespace)
                    client.delete(*place, missing_ok=True)
        elif not pods:
            return False
        if len(pods) != len(left):
            console.say(f"{count(len(pods), 'pod')} left" if pods else "no pods left")
        left[:] = [
            f"{pod['metadata']['name']} on {pod['spec'].get('nodeName') or 'no node'}"
            for pod in pods
        ]
        return is_gone and not left

    if not console.wait(seconds, _POLL_SECONDS, gone):
        found = f"after {duration(seconds)} there are still {', '.join(left) or job.name}"
        remedy = f"run meks cancel {job.name} again to go on waiting; on a lost node a pod stays "
        remedy += "until kubectl delete --force"
        raise Failure(Code.PODS_REMAIN, found, remedy)
