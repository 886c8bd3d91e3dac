"""Training jobs as the charts render them, and what becomes of them."""

from dataclasses import replace
from typing import cast

from megatron_eks.catalog.workloads import MADE, WORKLOADS, AnyWorkload, templates, whole
from megatron_eks.kubernetes.client import Client, Object, wait_for
from megatron_eks.ops.kube.jobs import RunningJob, is_gone
from tests.charts import rendered

# GPU nodes of the cluster that all tests share.
NODES = 4

DONE = {"PyTorchJob": "Succeeded", "JobSet": "Completed", "TrainJob": "Complete"}
"""By kinds of jobs that have a controller, the condition of those that have ended well."""
KINDS = tuple(DONE)


def training_job(name: str, nodes: int = 2, kind: str = "PyTorchJob") -> Object:
    """Return the default job under another name and on another number of nodes."""
    workload = cast("AnyWorkload", kind.lower())
    plan = replace(rendered.training_job(), name=name, nodes=nodes, workload=workload)
    objects = rendered.jobs(plan)
    return whole(rendered.only(objects, kind), objects)


def apply(client: Client, job: Object) -> Object:
    """Apply a job, after what it will become."""
    if MADE in job:
        metadata = {key: job["metadata"][key] for key in ("name", "namespace", "labels")}
        runtime = {"kind": WORKLOADS[job["kind"]].runtime, "metadata": metadata}
        client.apply({**_bare(job), **runtime, "spec": {"template": job[MADE]}})
    return client.apply(_bare(job))


def _bare(job: Object) -> Object:
    return {key: each for key, each in job.items() if key != MADE}


def delete(client: Client, job: Object) -> None:
    """Delete a job and return when its pods are gone, because the next test needs the nodes."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    client.delete(job["apiVersion"], job["kind"], name, namespace, missing_ok=True)
    found = RunningJob(job)

    def gone() -> bool:
        if job["kind"] in WORKLOADS and not is_gone(client, found):
            return False
        # The garbage collector looks for new kinds, such as PyTorchJob, every 30 s only, and the
        # operator may make one more pod before it knows that the job is gone.
        pods = pods_of(client, job) if job["kind"] in WORKLOADS else []
        for metadata in (pod["metadata"] for pod in pods):
            if "deletionTimestamp" not in metadata:
                client.delete("v1", "Pod", metadata["name"], metadata["namespace"], missing_ok=True)
        return not pods

    wait_for("deletion", gone, 120)


def pod_specs(job: Object) -> list[Object]:
    """Return the pod of each role, to be changed in place."""
    return [template["spec"] for _, template in templates(job)]


def pods_of(client: Client, job: Object) -> list[Object]:
    """Return the pods that a controller has made of a job so far, the master's first."""
    labels = f"{WORKLOADS[job['kind']].job_label}={job['metadata']['name']}"
    return client.list("v1", "Pod", job["metadata"]["namespace"], labels=labels)


def place(job: Object) -> tuple[str, str]:
    """Return name and namespace."""
    return job["metadata"]["name"], job["metadata"]["namespace"]


def events_of(client: Client, job: Object) -> list[Object]:
    """Return the events on a job itself, as `kubectl describe` shows them."""
    name, namespace = place(job)
    return [
        event
        for event in client.list("v1", "Event", namespace)
        if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (job["kind"], name)
    ]


def wait_for_pods(
    client: Client, job: Object, count: int, phase: str, seconds: float = 90
) -> list[Object]:
    """Return the pods of a job once all of them are in a phase."""

    def found() -> list[Object]:
        pods = pods_of(client, job)
        done = len(pods) == count and all(pod["status"]["phase"] == phase for pod in pods)
        return pods if done else []

    return wait_for(f"{count} pods to be {phase}", found, seconds)


def wait_for_condition(client: Client, job: Object, condition: str, seconds: float = 60) -> Object:
    """Return a job once its controller reports a condition."""
    metadata = job["metadata"]

    def found() -> Object | None:
        now = client.get(job["apiVersion"], job["kind"], metadata["name"], metadata["namespace"])
        conditions = now.get("status", {}).get("conditions", [])
        met = any(each["type"] == condition and each["status"] == "True" for each in conditions)
        return now if met else None

    return wait_for(f"the job to be {condition}", found, seconds)


def environment(pod: Object) -> dict[str, str]:
    """Return the variables of the training container that have a plain value."""
    (container,) = pod["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}
