"""A job in the cluster: the object that runs it, its ranks, and what becomes of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from megatron_eks.catalog.workloads import MADE, WORKLOADS, WorkloadKind, templates, whole
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.failure import NoJob
from megatron_eks.ops.kube import pods
from megatron_eks.ops.kube.pods import PodState

CONTAINER = "pytorch"

_ROLE = "training.kubeflow.org/replica-type"

# Conditions of all kinds of jobs; the first that holds says the phase.
_PHASES = {
    "Failed": "Failed",
    "FailureTarget": "Failed",
    "Cancelled": "Cancelled",
    "Succeeded": "Succeeded",
    "Complete": "Succeeded",
    "Completed": "Succeeded",
    "Suspended": "Suspended",
    "Restarting": "Restarting",
    "RestartingJobSet": "Restarting",
}
ENDED = pods.ENDED | {"Cancelled"}
"""How jobs end; that one was cancelled only its record tells, for then its object is gone."""


@dataclass(frozen=True)
class Rank:
    """One pod of a job, or the place of one that is not there."""

    number: int
    pod: PodState | None
    manifest: Object | None

    @property
    def runs(self) -> bool:
        """Whether its pod is said to."""
        return self.pod is not None and self.pod.phase == "Running"


@dataclass(frozen=True)
class RunningJob:
    """A job's object, of any kind that runs jobs, with what it becomes where that is another."""

    manifest: Object

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return str(self.manifest["kind"])

    @property
    def workload(self) -> WorkloadKind:
        """What there is to know of its kind."""
        return WORKLOADS[self.kind]

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Where it is."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """What tells it from an earlier job of its name."""
        return str(self.manifest["metadata"]["uid"])

    @property
    def made(self) -> Object:
        """What makes its pods: the object itself, or the one that it becomes."""
        return {**self.manifest.get(MADE, self.manifest)}

    @property
    def uids(self) -> tuple[str, ...]:
        """Its own, and that of what it has become."""
        return self.uid, str(self.made.get("metadata", {}).get("uid", ""))

    def makes(self, about: Object) -> bool:
        """Tell whether an event is about the job, or about what stands between it and its pods."""
        parts = self.made["spec"].get("replicatedJobs") or ()
        names = [f"{self.name}-{each['name']}-0" for each in parts]
        of_set = about.get("kind") == "Job" and about.get("name") in names
        return of_set or about.get("uid") in self.uids

    @cached_property
    def pod_specs(self) -> list[tuple[int, Object]]:
        """How many pods there are to be of each specification."""
        return pod_specs(self.manifest)

    @property
    def pool(self) -> str:
        """Whose nodes it needs; empty: on the system nodes."""
        return pods.pool_of(self.pod_specs[0][1])

    @property
    def wanted(self) -> int:
        """How many pods it is to have."""
        return sum(count for count, _ in self.pod_specs)

    def condition(self, kind: str) -> Object:
        """Return a condition of it that holds; empty where it does not."""
        return pods.condition(self.manifest, kind)

    @property
    def restarts(self) -> int:
        """How often its controller has made all of its pods anew; in place is what pods say."""
        return int(self.made.get("status", {}).get("restarts") or 0)

    @property
    def ended(self) -> str:
        """`Failed`, `Succeeded` or `Cancelled` once it has ended, else nothing."""
        phase = self.phase([])
        return phase if phase in ENDED else ""

    def phase(self, ranks: Sequence[Rank]) -> str:
        """Say in a word how far it is; a job runs when all of its ranks do."""
        if "deletionTimestamp" in self.manifest["metadata"]:
            return "Deleting"
        for kind, phase in _PHASES.items():
            if self.condition(kind):
                return phase
        if running := sum(rank.runs for rank in ranks):
            ended = sum(rank.pod is not None and rank.pod.phase == "Succeeded" for rank in ranks)
            return "Running" if running + ended >= len(ranks) else "Starting"
        return "Pending"

    def message(self) -> str:
        """Return what the controller says about its end."""
        for kind, phase in _PHASES.items():
            if phase in ENDED and (found := self.condition(kind)):
                return pods.one_line(found.get("message", "") or found.get("reason", ""))
        return ""


def pod_specs(manifest: Object) -> list[tuple[int, Object]]:
    """Return how many pods a job is to have of each specification."""
    return [(count, template["spec"]) for count, template in templates(manifest)]


def find(client: Client, namespace: str, name: str) -> RunningJob | None:
    """Return the job of a name, whichever kind runs it."""
    for each in WORKLOADS.values():
        found = client.find(each.api_version, each.kind, name, namespace)
        if found is not None and (job := _whole(client, found)):
            return job
    return None


def get(client: Client, namespace: str, name: str) -> RunningJob:
    """Return the job of a name; raise Failure if there is none, naming those that there are."""
    found = find(client, namespace, name)
    if found is None:
        raise NoJob(namespace, name, [each.name for each in everything(client, namespace)])
    return found


def everything(client: Client, namespace: str) -> list[RunningJob]:
    """Return all jobs of a namespace, by name."""
    found: list[RunningJob] = []
    for kind in WORKLOADS.values():
        # Without its controller there is no such kind.
        items = client.list(kind.api_version, kind.kind, namespace, missing_ok=True)
        named = {"apiVersion": kind.api_version, "kind": kind.kind}
        found += filter(None, (_whole(client, {**each, **named}) for each in items))
    return sorted(found, key=lambda job: job.name)


def _whole(client: Client, manifest: Object) -> RunningJob | None:
    """Return a job with what it becomes; None for what another job's controller has made."""
    kind = WORKLOADS[manifest["kind"]]
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    if kind.makes is None or kind.runtime is None:
        owners = manifest["metadata"].get("ownerReferences") or ()
        # Such as the Job of a JobSet.
        made = any(each.get("controller") and each["kind"] in WORKLOADS for each in owners)
        return None if made else RunningJob(manifest)
    if found := client.find(WORKLOADS[kind.makes].api_version, kind.makes, name, namespace):
        return RunningJob({**manifest, MADE: found})
    runtime = client.find(kind.api_version, kind.runtime, name, namespace)
    return RunningJob(whole(manifest, [runtime])) if runtime else None


def delete(client: Client, job: RunningJob) -> None:
    """Delete a job, and so its pods; one that is gone by now is no error."""
    client.delete(job.workload.api_version, job.kind, job.name, job.namespace, missing_ok=True)


def is_gone(client: Client, job: RunningJob) -> bool:
    """Say whether a job is gone, and with it what it had become.

    Trainer would take the old JobSet's end for the next job's (kubeflow/trainer v2.3.0,
    plugins/jobset, Status). The garbage collector learns of new kinds every 30 s only.
    """
    if find(client, job.namespace, job.name) is not None:
        return False
    kind = job.workload.makes
    place = (WORKLOADS[kind].api_version, kind, job.name, job.namespace) if kind else None
    if place is None or client.find(*place) is None:
        return True
    client.delete(*place, missing_ok=True)
    return False


def pods_of(client: Client, job: RunningJob) -> list[Object]:
    """Return the pods of a job."""
    labels = f"{job.workload.job_label}={job.name}"
    return own(job, client.list("v1", "Pod", job.namespace, labels=labels))


def job_of(pod: Object) -> tuple[str, str] | None:
    """Return kind and name of the job that a pod belongs to by its labels."""
    labels = pod["metadata"].get("labels") or {}
    kinds = (each for each in WORKLOADS.values() if each.job_label in labels)
    return next(((each.kind, labels[each.job_label]) for each in kinds), None)


def by_job(found: Iterable[Object]) -> dict[tuple[str, str], list[Object]]:
    """Sort the pods of one namespace to their jobs, by kind and name."""
    sorted_: dict[tuple[str, str], list[Object]] = {}
    for pod in found:
        if key := job_of(pod):
            sorted_.setdefault(key, []).append(pod)
    return sorted_


def own(job: RunningJob, found: Iterable[Object]) -> list[Object]:
    """Return the pods that a job's controller has made for it.

    Those of an earlier job of its name may still be going, and any pod can bear its label.
    """
    own_pods = []
    for pod in found:
        metadata = pod["metadata"]
        owners = {each["uid"] for each in metadata.get("ownerReferences") or ()}
        # The label names the job through an object between the two.
        owners.add((metadata.get("labels") or {}).get(job.workload.uid_label))
        if owners & {*job.uids} - {""}:
            own_pods.append(pod)
    return own_pods


def ranks(job: RunningJob, found: Iterable[Object], events: Sequence[Object] = ()) -> list[Rank]:
    """Return a job's ranks in order, those without a pod included; of two pods the newer."""
    by_number = {number: own[-1] for number, own in by_rank(job, found).items()}
    # Each event is looked at once, not once a pod.
    about: dict[str, list[Object]] = {}
    for each in sorted(events, key=pods.when):
        about.setdefault(each["involvedObject"].get("uid", ""), []).append(each)

    def rank(number: int) -> Rank:
        pod = by_number.get(number)
        told = about.get(pod["metadata"]["uid"], []) if pod else []
        return Rank(number, pods.state(pod, told) if pod else None, pod)

    return [*map(rank, range(max([job.wanted, *(number + 1 for number in by_number)])))]


def by_rank(job: RunningJob, found: Iterable[Object]) -> dict[int, list[Object]]:
    """Sort a job's own pods to its ranks, the newest of each last."""
    by_number: dict[int, list[Object]] = {}
    mine = own(job, found)
    for pod in sorted(mine, key=_age):
        number = rank_of(job, pod)
        # A label that somebody changed names no place.
        if number is not None and number < job.wanted + len(mine):
            by_number.setdefault(number, []).append(pod)
    return by_number


def rank_of(job: RunningJob, pod: Object) -> int | None:
    """Return the number of a pod among those of its job: torchrun's node rank."""
    labels = pod["metadata"].get("labels") or {}
    spec = job.made["spec"]
    if job.kind == "Job" and spec.get("completionMode") != "Indexed":
        return 0
    index = labels.get(job.workload.index_label, "")
    if not (index.isascii() and index.isdecimal()):
        return None
    has_master = "Master" in spec.get("pytorchReplicaSpecs", {})
    return int(index) + (1 if has_master and labels.get(_ROLE) == "worker" else 0)


def _age(pod: Object) -> tuple[str, bool]:
    """Order pods by age; of two that were made within a second, the one that goes on is newer."""
    metadata = pod["metadata"]
    gone = "deletionTimestamp" in metadata or pods.has_ended(pod)
    return str(metadata.get("creationTimestamp")), not gone
