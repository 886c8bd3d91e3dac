"""Rules over the jobs inside a JobSet or a training runtime: their names, and what Jobs need."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.jobs import job_launches, job_meeting, job_policies
from megatron_eks.rules.jobs.rendezvous import launcher_flags
from megatron_eks.rules.objects import fields, pod_runtime
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_HOLDERS: dict[tuple[str, str], Path] = {
    ("jobset.x-k8s.io", "JobSet"): ("spec",),
    ("trainer.kubeflow.org", "TrainingRuntime"): ("spec", "template", "spec"),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): ("spec", "template", "spec"),
}
_OF_A_POD = ("spec", "template", "spec")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_HOST = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MOST = 999
_LABEL_LENGTH = 63
_NO_POD = re.compile(
    r"(?P<pod>[a-z0-9-]+) is no pod of this Job|no pod is called (?P<called>[a-z0-9-]+)"
)
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_STEPS = ("dataset-initializer", "model-initializer", "trainer")
_SOURCES = frozenset({"flux", "jax", "mpi", "torch", "xgboost"})
_MAIN = "node"


@dataclass(frozen=True)
class ReplicatedJob:
    """One of the jobs of a set."""

    path: Path
    """From the object's root."""
    name: str | None
    replicas: int | None
    template: Mapping[str, Json]
    body: Mapping[str, Json]

    @property
    def spec(self) -> "Mapping[str, Json]":
        """The spec of its Jobs."""
        return mapping(self.template.get("spec")) or {}


def set_of(manifest: Manifest) -> "tuple[Path, Mapping[str, Json]] | None":
    """Return a JobSet's spec with its place, also the one inside a runtime."""
    place = _HOLDERS.get((manifest.group, manifest.kind))
    if place is None:
        return None
    value: Json = dict(manifest.body)
    for key in place:
        value = (mapping(value) or {}).get(str(key))
    return place, mapping(value) or {}


def replicated_jobs(manifest: Manifest) -> list[ReplicatedJob]:
    """Return the jobs of a set; none for other kinds."""
    place, spec = set_of(manifest) or ((), {})
    found = []
    for index, value in enumerate(items(spec.get("replicatedJobs")) or []):
        body = mapping(value) or {}
        given = body.get("replicas")
        replicas = 1 if is_absent(given) else number(given)
        path = (*place, "replicatedJobs", index)
        template = mapping(body.get("template")) or {}
        found.append(ReplicatedJob(path, text(body.get("name")), replicas, template, body))
    return found


def pods_of_set(manifest: Manifest) -> list[str]:
    """Return the names of a JobSet's pods; none where one of them cannot be a name.

    JobSet, "Concepts": pods are SET-JOB-INDEX-INDEX, of the Job and of the pod in it.
    """
    hosts: list[str] = []
    for job in replicated_jobs(manifest):
        pods = number(job.spec.get("completions", job.spec.get("parallelism", 1)))
        groups, inner = indices(job.replicas), indices(pods)
        stem = f"{manifest.name}-{job.name}"
        hosts += [f"{stem}-{index}-{each}" for index in groups for each in inner]
    return hosts if all(_HOST.fullmatch(each) for each in hosts) else []


def indices(count: int | None) -> range:
    """Return the numbers of pods; none of so many that the count itself is a mistake."""
    return range(count if count is not None and count <= _MOST else 0)


def names(manifest: Manifest) -> Iterator[Finding]:
    """Require of names inside a set that one of its jobs bears them.

    kubernetes-sigs/jobset v1alpha2, pkg/webhooks/jobset_webhook.go: targets of the policies, the
    coordinator and dependsOn must be replicated jobs, or the set is refused.
    """
    place, spec = set_of(manifest) or ((), {})
    jobs = replicated_jobs(manifest)
    known = {each.name for each in jobs}
    if not jobs or None in known or any(is_placeholder(each or "") for each in known):
        return
    for each in jobs:
        if each.name and not _LABEL.fullmatch(each.name):
            found = f"{shown(each.name)} is no DNS label: the webhook refuses the set"
            remedy = "use lower-case letters, digits and dashes, a letter first"
            yield manifest.find(Code.REPLICATED_JOBS, (*each.path, "name"), found, remedy)
    there = ", ".join(sorted(filter(None, known)))
    for path, name in _named(place, spec, jobs):
        if name not in known and not is_placeholder(name):
            found = f"no replicated job {shown(name)}: the webhook refuses the set"
            yield manifest.find(Code.REPLICATED_JOBS, path, found, f"there: {there}")
    coordinator = mapping(spec.get("coordinator")) or {}
    job = next((each for each in jobs if each.name == coordinator.get("replicatedJob")), None)
    if job is not None:
        pods = number(job.spec.get("completions", job.spec.get("parallelism")))
        for key, count in (("jobIndex", job.replicas), ("podIndex", pods)):
            index = number(coordinator.get(key))
            if index is not None and count is not None and index >= count:
                found = f"{index} of {count}, which are counted from 0: the webhook refuses the set"
                path = (*place, "coordinator", key)
                remedy = f"use 0 to {count - 1}"
                yield manifest.find(Code.REPLICATED_JOBS, path, found, remedy)


def lengths(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a set whose name makes names of Jobs or pods that are no DNS labels for their length.

    kubernetes-sigs/jobset v1alpha2, pkg/webhooks/jobset_webhook.go, ValidateCreate: Jobs are
    SET-JOB-INDEX, pods of Indexed ones SET-JOB-INDEX-INDEX with a dash and five characters; of
    pods whose number is not written it judges nothing.
    """
    name = manifest.name
    if manifest.kind != "JobSet" or name is None or is_placeholder(name):
        return
    longest, of_what = "", ""
    for job in replicated_jobs(manifest):
        mode = job.spec.get("completionMode")
        pods = number(job.spec.get("completions")) or 0
        if not job.name or is_placeholder(job.name) or not job.replicas or job.replicas < 1:
            continue
        made = f"-{job.name}-{job.replicas - 1}"
        what = "a Job"
        # The webhook that fills in defaults makes them Indexed, before this one judges.
        if pods > 0 and (is_absent(mode) or mode == "Indexed"):
            made, what = f"{made}-{pods - 1}-xxxxx", "a pod"
        if len(made) > len(longest):
            longest, of_what = made, what
    most = _LABEL_LENGTH - len(longest)
    if longest and len(name) > most:
        found = f"{len(name)} characters: the name of {of_what}, NAME{longest}, has "
        found += f"{len(name) + len(longest)}, and over {_LABEL_LENGTH} the webhook refuses the set"
        remedy = f"use at most {most}" if most > 0 else "shorten the replicated job's name"
        yield manifest.find(Code.REPLICATED_JOBS, ("metadata", "name"), found, remedy)


def _named(
    place: Path, spec: "Mapping[str, Json]", jobs: list[ReplicatedJob]
) -> Iterator[tuple[Path, str]]:
    holders: list[tuple[Path, Mapping[str, Json]]] = [
        ((*place, "successPolicy"), mapping(spec.get("successPolicy")) or {})
    ]
    failure = mapping(spec.get("failurePolicy")) or {}
    for index, value in enumerate(items(failure.get("rules")) or []):
        holders.append(((*place, "failurePolicy", "rules", index), mapping(value) or {}))
    for path, holder in holders:
        for index, value in enumerate(items(holder.get("targetReplicatedJobs")) or []):
            if (name := text(value)) is not None:
                yield (*path, "targetReplicatedJobs", index), name
    coordinator = mapping(spec.get("coordinator")) or {}
    if (name := text(coordinator.get("replicatedJob"))) is not None:
        yield (*place, "coordinator", "replicatedJob"), name
    for job in jobs:
        for index, value in enumerate(items(job.body.get("dependsOn")) or []):
            if (name := text((mapping(value) or {}).get("name"))) is not None:
                yield (*job.path, "dependsOn", index, "name"), name


def jobs_inside(manifest: Manifest) -> Iterator[Finding]:
    """Require of the jobs of a set what is required of a Job.

    kubernetes-sigs/jobset v1alpha2, api: each makes Jobs of batch/v1, Indexed unless it says
    otherwise, whose pods are restarted on failure where nothing is said.
    """
    jobs = replicated_jobs(manifest)
    _, of_set = set_of(manifest) or ((), {})
    for job in jobs:
        own = Manifest(_as_job(manifest, job, of_set))
        rules: list[Callable[[Manifest], Iterator[Finding]]] = [
            *(job_meeting.meeting, job_launches.completion_index),
            *(pod_runtime.job_fields, job_policies.policies),
        ]
        # Ranks in several jobs of one set belong together, and no single one tells how many.
        twice = _ranks_twice(manifest, job, own) if manifest.kind == "JobSet" else None
        if twice is not None:
            yield twice
        elif len(jobs) == 1 and manifest.kind == "JobSet":
            rules.append(job_launches.nodes_of_a_job)
        for rule in rules:
            yield from (
                _moved(manifest, job, each)
                for each in rule(own)
                if not _said_of_set(manifest, each.found)
            )
        for each in fields.fields(Manifest(_as_written(job))):
            # Its pods are judged with those of all other kinds.
            if each.path[1:4] != _OF_A_POD and not each.found.startswith("Kubernetes needs"):
                yield _moved(manifest, job, each)


def _ranks_twice(manifest: Manifest, job: ReplicatedJob, own: Manifest) -> Finding | None:
    """Refuse several Jobs whose pods all meet at one address, and are counted in each of them.

    torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py: node 0 serves the store, and a
    number that comes twice takes the place of the first one.
    """
    pods = number(job.spec.get("completions", job.spec.get("parallelism", 1))) or 0
    several = job.replicas is not None and job.replicas > 1
    containers = [each for pod in own.pods for each in pod.containers if several]
    for container in containers:
        flags = {name: value for _, name, value in launcher_flags(container)}
        address, nodes = flags.get("master-addr", ""), number(flags.get("nnodes", ""))
        one_place = bool(address) and "$" not in address and not is_placeholder(address)
        static = flags.get("rdzv-backend", "static") == "static" and "rdzv-endpoint" not in flags
        counted = "JOB_COMPLETION_INDEX" in flags.get("node-rank", "")
        if nodes == pods > 1 and one_place and static and counted and not container.is_init:
            found = f"{job.replicas} Jobs of {pods} nodes, and all meet at one address: each node "
            found += f"is there {job.replicas} times"
            total = pods * (job.replicas or 1)
            remedy = f"write replicas: 1, or one Job of {total} pods with --nnodes={total}"
            return manifest.find(Code.RENDEZVOUS_FLAG, (*job.path, "replicas"), found, remedy)
    return None


def _said_of_set(manifest: Manifest, found: str) -> bool:
    """Tell whether a rule over the set's names says the same of an address.

    A set gives its pods a subdomain, and names that begin with its own.
    """
    pods = pods_of_set(manifest)
    match = _NO_POD.search(found)
    pod = (match["pod"] or match["called"]) if match is not None else ""
    named = pod.startswith(f"{manifest.name}-") and bool(pods) and pod not in pods
    return named or "so DNS has no such name" in found


def _as_written(job: ReplicatedJob) -> "dict[str, Json]":
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": dict(job.spec)}


def _as_job(
    manifest: Manifest, job: ReplicatedJob, of_set: "Mapping[str, Json]"
) -> "dict[str, Json]":
    """Return a Job as the controller makes it: with its defaults, and the set's name and DNS."""
    spec = {"completionMode": "Indexed", **job.spec}
    pods = number(spec.get("parallelism", 1))
    if pods is not None and job.replicas is not None:
        spec["parallelism"] = pods * job.replicas
    if is_absent(spec.get("completions")) or pods == number(spec.get("completions")):
        spec["completions"] = spec.get("parallelism")
    template = dict(mapping(spec.get("template")) or {})
    network = mapping(of_set.get("network")) or {}
    subdomain = network.get("subdomain", manifest.name)
    known = manifest.kind == "JobSet" and network.get("enableDNSHostnames", True) is not False
    defaults: dict[str, Json] = {"restartPolicy": "OnFailure"}
    if known and isinstance(subdomain, str):
        defaults["subdomain"] = subdomain
    template["spec"] = {**defaults, **(mapping(template.get("spec")) or {})}
    spec["template"] = template
    name = f"{manifest.name}-{job.name}-0" if manifest.kind == "JobSet" else None
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def _moved(manifest: Manifest, job: ReplicatedJob, finding: Finding) -> Finding:
    return replace(finding, path=(manifest.title, *job.path, "template", *finding.path[1:]))


def runtimes(manifest: Manifest) -> Iterator[Finding]:
    """Require of a training runtime the marks by which a TrainJob finds its job and container.

    Kubeflow Trainer, "Job Template", ancestor labels; pkg/constants (container "node"), and
    pkg/webhooks (replicas: 1): without them the TrainJob's image, command and nodes do nothing.
    """
    jobs = replicated_jobs(manifest)
    if manifest.group != "trainer.kubeflow.org" or not jobs:
        return
    sources = sorted(_SOURCES & (mapping(manifest.spec.get("mlPolicy")) or {}).keys())
    if len(sources) > 1:
        found = f"{' and '.join(sources)} together: the API server refuses the runtime"
        path: Path = ("spec", "mlPolicy")
        yield manifest.find(Code.REPLICATED_JOBS, path, found, "keep one of them")
    marked = {}
    for job in jobs:
        labels = mapping((mapping(job.template.get("metadata")) or {}).get("labels")) or {}
        step = text(labels.get(_STEP))
        marked[step] = job
        path = (*job.path, "template", "metadata", "labels", _STEP)
        if step is not None and step not in _STEPS and not is_placeholder(step):
            found = f"{shown(step)} is no step of a TrainJob, so nothing is put into this job"
            yield manifest.find(Code.REPLICATED_JOBS, path, found, f"use {', '.join(_STEPS)}")
        if job.replicas not in {None, 1}:
            found = f"replicas {job.replicas}: the webhook refuses the runtime"
            remedy = "write 1, and the nodes as mlPolicy.numNodes"
            yield manifest.find(Code.REPLICATED_JOBS, (*job.path, "replicas"), found, remedy)
    trainer = marked.get("trainer")
    if trainer is None:
        found = "no job has the step 'trainer': image, command and nodes of a TrainJob do nothing"
        path = (*(jobs[0].path[:-1]), len(jobs) - 1, "template", "metadata", "labels")
        remedy = f"add {_STEP}: trainer to the job that trains"
        yield manifest.find(Code.REPLICATED_JOBS, path, found, remedy)
        return
    for pod in manifest.pods:
        own = pod.path[1 : 1 + len(trainer.path)] == trainer.path
        ordinary = [each.name for each in pod.containers if not each.is_init]
        if own and _MAIN not in ordinary and None not in ordinary:
            found = f"no container {_MAIN!r} in the job that trains: a TrainJob changes none"
            path = (*pod.path[1:], "containers")
            yield manifest.find(Code.REPLICATED_JOBS, path, found, f"call it {_MAIN}")
