"""Guards of jobs: PyTorchJobs, Jobs with an index for each rank, and Jobs of one pod."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.config.outputs import PLACEHOLDER_HOST, PREVIEW_ANNOTATION
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.values import YES, Value, written

_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LAUNCHER = re.compile(r"--(nnodes|nproc.per.node|node.rank|master.\w+|standalone|rdzv).*")
_CLEAN = "spec runPolicy cleanPodPolicy"
_LIMITS = (
    ("backoffLimit", 0, "3", "a job that fails at its start is tried for hours"),
    ("ttlSecondsAfterFinished", 60, "604800", "its logs go at once, or its name is never free"),
    ("activeDeadlineSeconds", 60, "3600", "it ends at once, or one that hangs keeps its node"),
)
# Our programs end with these where another try cannot help (docs/images.md).
_MISTAKES = (2, 3, 4)
_RULES = (
    ("onExitCodes", ("FailJob", "FailIndex"), "a mistake is tried again and again"),
    ("onPodConditions", ("Ignore",), "a node that goes counts as a failure of the job"),
)
_RESTARTS = "a container that fails is not started again, or always is"
_Row = tuple[Code, str, tuple[Json, ...], str]


@manifest_guard
def pytorch_jobs(manifests: Manifests) -> Iterator[Finding]:
    """Give a PyTorchJob the shape that the operator takes (kubeflow/trainer 1.9.4, webhook)."""
    for job in manifests.of("PyTorchJob"):
        spec, roles = job["spec"], job["spec"]["pytorchReplicaSpecs"]
        again = _restarts(spec["runPolicy"])
        rows: list[_Row] = [
            (Code.API_VERSION, "apiVersion", ("kubeflow.org/v1",), "the operator knows no other"),
            (Code.CLEAN_POD_POLICY, _CLEAN, ("Running", "All"), "failed pods keep their GPUs"),
        ]
        if not spec["elasticPolicy"] and not roles["Master"]:
            found = "no Master: the ranks never find each other"
            yield roles.finding(Code.MASTER_REPLICAS, found, "add a Master with replicas: 1")
        for role, replica in roles.items():
            path, count = f"spec pytorchReplicaSpecs {role}", replica["replicas"]
            label, name = f"{path} template metadata labels role", role.lower()
            rows += [
                (Code.RESTART_POLICY, f"{path} restartPolicy", again, _RESTARTS),
                (Code.POD_LABEL, label, (name, None), "commands for its pods do not find them"),
            ]
            if not {"Master": count.raw == 1, "Worker": (count.number or 0) >= 1}.get(role):
                found = f"{role} with replicas {written(count.raw)}: ranks are missing, or refused"
                remedy = "write Master with replicas: 1, or Worker with 1 or more"
                yield count.finding(Code.MASTER_REPLICAS, found, remedy)
        for pod in job.pods:
            yield from _ranks(pod)
        yield from _wrong(job.body, rows)
        yield from _name(job, f"-worker-{int(roles['Worker']['replicas'].number or 1) - 1}")


def _ranks(pod: Pod) -> Iterator[Finding]:
    roles = pod.owner["spec"]["pytorchReplicaSpecs"]
    names = pod.spec["containers"]
    if [each["name"].text for each in names].count("pytorch") != 1:
        found = "not one container named 'pytorch': the webhook refuses the job"
        yield names.finding(Code.CONTAINER_NAME, found, "name the container 'pytorch'")
    limit = pod.main["resources"]["limits"]["nvidia.com/gpu"]
    ranks = pod.owner["spec"]["nprocPerNode"]
    gpus, why = str(limit.quantity), "some GPUs stay idle, or two ranks share one"
    allowed = (gpus, "auto", "gpu") if limit else (ranks.raw,)
    yield from ranks.must_be(Code.PROCESSES_PER_NODE, *allowed, why=why)
    if not limit:
        found = f"no nvidia.com/gpu for {written(ranks.raw)} ranks of a pod"
        yield limit.finding(Code.PROCESSES_PER_NODE, found, "ask for a GPU for each rank")
    for word in pod.main["command"]:
        if _LAUNCHER.fullmatch(word.text):
            found = f"{word.text} overrides what the operator sets for each pod"
            yield word.finding(Code.RENDEZVOUS_FLAG, found, "remove it")
    alone = sum(each["replicas"].number or 0 for _, each in roles.items()) == 1
    if alone and "--heartbeats" in pod.main["args"].texts:
        found = "one pod of a job whose arguments are for several: the others are missing"
        yield roles.finding(Code.MASTER_REPLICAS, found, "add Worker with the same pod")


@manifest_guard
def same_pod(manifests: Manifests) -> Iterator[Finding]:
    """Run the same pod on all ranks, or they hang or spoil the job (torch.distributed.run)."""
    for job in manifests.of("PyTorchJob"):
        master, worker = (job["spec"]["pytorchReplicaSpecs"][e] for e in ("Master", "Worker"))
        for there, here in _differences(master, worker) if master and worker else ():
            if here.path[-1] != "replicas" and here.path[-2:] != ("labels", "role"):
                found = f"{written(here.raw)} here and {written(there.raw)} in the Master: ranks "
                found += "that differ hang the job or spoil its result"
                yield here.finding(Code.REPLICAS_DIFFER, found, "write the same for both")


@manifest_guard
def indexed_jobs(manifests: Manifests) -> Iterator[Finding]:
    """Start all ranks of a Job at once, with index and name (Kubernetes, "Indexed Job")."""
    for job in manifests.of("Job"):
        spec, pod = job["spec"], job.pods[0]
        command, count = pod.main["command"], spec["completions"].raw or spec["parallelism"].raw
        indexed = spec["completionMode"] or (spec["completions"].number or 0) > 1
        if "torchrun" not in command.texts and not indexed:
            continue
        rows: list[_Row] = [
            (Code.JOB_FIELDS, "completionMode", ("Indexed",), "ranks and shards need an index"),
            (Code.JOB_FIELDS, "parallelism", (count,), "ranks wait for those made later"),
            (Code.JOB_FIELDS, "completions", (count,), "ranks and shards need an index"),
        ]
        if "torchrun" in command.texts:
            rows.append((Code.SERVICE, "template spec subdomain", (job.name,), "ranks lack names"))
            service = manifests.named("Service", job.name, job.namespace)
            ready = (Code.RANKS_WAIT, "publishNotReadyAddresses", (YES,), "rank 0 has no name yet")
            named = (Code.SERVICE, "clusterIP", ("None",), "only a headless one names each pod")
            yield from _wrong(service["spec"], [ready, named]) if service else ()
            if service is None:
                found = f"no Service {job.name}: rank 0 has no name, and the others never find it"
                remedy = f"add a headless Service (clusterIP: None) named {job.name}"
                yield pod.spec["subdomain"].finding(Code.SERVICE, found, remedy)
            gpus = pod.main["resources"]["limits"]["nvidia.com/gpu"].quantity
            options = {f"--nnodes={count}", f"--nproc-per-node={gpus}"}
            options |= {f"--master-addr={job.name}-0.{job.name}"}
            given = {text.replace("_", "-") for text in command.texts}
            for word in command:
                if word.text.startswith(("--rdzv", "--standalone")):
                    found = f"{word.text} overrides --master-addr: the ranks never meet"
                    yield word.finding(Code.RENDEZVOUS_FLAG, found, "remove it")
            for option in sorted({*options, "--node-rank=$(JOB_COMPLETION_INDEX)"}):
                if option.replace("_", "-") not in given:
                    found = f"torchrun without {option}: the ranks of this Job never meet"
                    yield command.finding(Code.RENDEZVOUS_FLAG, found, f"write {option}")
        yield from _wrong(spec, rows)
        yield from _name(job, f"-{count}")


@manifest_guard
def ends(manifests: Manifests) -> Iterator[Finding]:
    """Try a job a few times, and not for mistakes that a try repeats (Kubernetes, "Jobs")."""
    for job in manifests.of("Job", "PyTorchJob"):
        limits = job["spec"] if job.kind == "Job" else job["spec"]["runPolicy"]
        priority = job.main_pod.spec["priorityClassName"].text if job.main_pod else ""
        for name, least, usual, why in _LIMITS:
            given = limits[name]
            needed = given or not least or (priority and name[0] == "t") or "-valid" in priority
            if needed and (-1 if given.number is None else given.number) < least:
                level = Level.ERROR if given or not least else Level.WARNING
                found = f"{name} is {written(given.raw)}: {why}"
                yield given.finding(Code.JOB_FIELDS, found, f"write a number, {usual}", level)
    for job in manifests.of("Job"):
        yield from _failure_policy(job["spec"], job.pods[0])


def _failure_policy(spec: Value, pod: Pod) -> Iterator[Finding]:
    rules, names = spec["podFailurePolicy"]["rules"], tuple(e["name"].text for e in pod.containers)
    again = _restarts(spec) if spec["completions"] and not rules else ("Never",)
    yield from pod.spec["restartPolicy"].must_be(Code.RESTART_POLICY, *again, why=_RESTARTS)
    for kind, actions, why in _RULES if again == ("Never",) else ():
        own = [each for each in rules if each[kind].raw]
        if "pytorch" in names and not own:
            found, remedy = f"no rule for {kind}: {why}", f"add one with action {actions[0]}"
            yield rules.finding(Code.JOB_FIELDS, found, remedy, Level.WARNING)
        for rule in own:
            rows: list[_Row] = [(Code.JOB_FIELDS, "action", actions, why)]
            if kind == "onExitCodes":
                rows.append((Code.JOB_FIELDS, f"{kind} containerName", names, why))
                rows.append((Code.JOB_FIELDS, f"{kind} operator", ("In",), why))
            yield from _wrong(rule, rows)
            for code in rule[kind]["values"]:
                yield from code.must_be(Code.JOB_FIELDS, *_MISTAKES, why=why)
            for each in rule[kind]:
                yield from each["type"].must_be(Code.JOB_FIELDS, "DisruptionTarget", why=why)


@manifest_guard
def job_parts(manifests: Manifests) -> Iterator[Finding]:
    """Label what belongs to a job (docs/commands.md), and wait for policies (EKS, "Limit Pod")."""
    for job in manifests.of("PyTorchJob", "Job"):
        pod = job.main_pod
        if pod is None or pod.main["name"].text != "pytorch":
            continue
        names = {job.name, f"ranks-of-{job.name}"}
        names |= {v["configMap"]["name"].text for v in pod.spec["volumes"]} - {"ca-bundle"}
        parts = manifests.of("ConfigMap", "Service", "NetworkPolicy")
        for each in (job, *(each for each in parts if each.name in names)):
            why, app = "meks does not find it as a part of the job", pod.metadata["labels"]["app"]
            rows = (("megatron-eks/job", (job.name,), why), ("app", (app.raw,), why))
            yield from each["metadata"]["labels"].must_hold(Code.POD_LABEL, rows)
            chosen = each["spec"]["podSelector"]["matchLabels"]
            if each.kind == "NetworkPolicy" and job.name not in [v.text for _, v in chosen.items()]:
                found = "the policy is for other pods than this job's: it opens or cuts them off"
                remedy = f"select the label of the job's name: {job.name}"
                yield chosen.finding(Code.SELECTS_NOTHING, found, remedy)
        first = pod.spec["initContainers"][0]
        if first["name"].text != "wait-for-policies" or not first["command"].raw:
            found = "no init container wait-for-policies: the pod begins while others reach it"
            remedy = "add it first, with its command, as make synth writes it"
            yield pod.spec["initContainers"].finding(Code.JOB_FIELDS, found, remedy, Level.WARNING)


@manifest_guard
def previews(manifests: Manifests) -> Iterator[Finding]:
    """Mark what holds a placeholder, or `meks apply` starts what cannot work (decision 0005)."""
    for each in manifests.of("PersistentVolume", "PyTorchJob", "Job"):
        text, mark = str(each.body.raw), each["metadata"]["annotations"][PREVIEW_ANNOTATION]
        if PLACEHOLDER_HOST in text or "fs-preview" in text:
            why = "a placeholder is applied as if it were an address"
            yield from mark.must_be(Code.PREVIEW_REFUSED, "true", why=why)


def _wrong(body: Value, rows: list[_Row]) -> Iterator[Finding]:
    for code, path, allowed, why in rows:
        yield from body.must_hold(code, [(path, allowed, why)])


def _restarts(policy: Value) -> tuple[str, ...]:
    several = (policy["backoffLimit"].number or 0) > 1
    return ("OnFailure", "ExitCode") if several else ("OnFailure", "Never")


def _name(job: Object, suffix: str) -> Iterator[Finding]:
    if not _NAME.fullmatch(job.name) or len(job.name + suffix) > 63:  # noqa: PLR2004 -- DNS labels
        found = f"a pod or Service {job.name}{suffix} has no DNS name: it is refused"
        remedy = f"use at most {63 - len(suffix)} small letters, digits and dashes"
        yield job["metadata"]["name"].finding(Code.JOB_NAME, found, remedy)


def _differences(there: Value, here: Value) -> Iterator[tuple[Value, Value]]:
    """Return what differs, as deep as possible."""
    keys: list[str | int] = []
    if isinstance(there.raw, dict) and isinstance(here.raw, dict):
        keys = [*{**there.raw, **here.raw}]
    elif isinstance(there.raw, list) and isinstance(here.raw, list):
        keys = [*range(len(there.raw))] if len(there.raw) == len(here.raw) else []
    if not keys and repr(there.raw) != repr(here.raw):
        yield there, here
    for key in keys:
        yield from _differences(there[key], here[key])
