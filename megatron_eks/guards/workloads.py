"""Guards of jobs: PyTorchJobs, Jobs with an index for each rank, and Jobs of one pod."""

import re

from megatron_eks.catalog import kueue
from megatron_eks.catalog.program_places import UNPACKED, ZIP
from megatron_eks.catalog.workloads import FINAL_EXIT_CODES, WITH_PODS, WORKLOADS
from megatron_eks.config.load import Json
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.manifests import Manifests, Object, Pod, manifest_guard
from megatron_eks.guards.node_types import GPU
from megatron_eks.guards.pods import PINNED
from megatron_eks.guards.values import (
    YES,
    Found,
    Row,
    Value,
    differences,
    report,
    same,
    warn,
    written,
)

_NAME, _LONGEST_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?"), 63  # of DNS labels
_LAUNCHER = re.compile(r"--(nnodes|nproc.per.node|node.rank|master.\w+|standalone|rdzv).*")
_LIMITS = (
    ("backoffLimit", 0, "3", "a job that fails at its start is tried for hours"),
    ("ttlSecondsAfterFinished", 60, "604800", "its logs go at once, or its name is never free"),
    ("activeDeadlineSeconds", 60, "3600", "it ends at once, or one that hangs keeps its node"),
)
_OF_RUNS = (
    ("backoffLimit", 1, "the first fault ends the run"),
    ("activeDeadlineSeconds", 86_400, "a run that takes longer is ended"),
)
_RETRIED, _LOST_NODE = "a mistake is tried again", "a lost node counts as one"
_RULES: dict[str, tuple[Row, ...]] = {
    "onExitCodes": (
        ("action", ("FailJob", "FailIndex"), _RETRIED),
        ("onExitCodes operator", ("In",), _RETRIED),
    ),
    "onPodConditions": (
        ("onPodConditions 0 type", ("DisruptionTarget",), _LOST_NODE),
        ("onPodConditions 0 status", ("True", None), _LOST_NODE),
    ),
}
_RESTARTS = "a container that fails is not started again, or always is"
_INDEXED = (("completionMode", ("Indexed",), "ranks and shards need an index"),)
_ALL_AGAIN, _ONE_JOB = "ranks that are left never meet those that start", "each has ranks 0 to N"
_FINAL = "failurePolicy rules action=FailJobSet "
_LOST = "failurePolicy rules action=RestartJobSetAndIgnoreMaxRestarts "
_SET: tuple[Row, ...] = (
    ("failurePolicy restartStrategy", ("BlockingRecreate",), "old ranks hold the GPUs"),
    ("network publishNotReadyAddresses", (None, YES), "rank 0 has no name yet"),
    ("network enableDNSHostnames", (None, YES), "ranks have no names"),
    ("failurePolicy maxRestarts", (), "the first failure ends it"),
    (f"{_FINAL}onJobFailureReasons", (["PodFailurePolicy"],), _RETRIED),
    (f"{_FINAL}onJobFailureMessagePatterns", (["failed with exit code"],), _RETRIED),
)
_SPARED: tuple[Row, ...] = (
    (f"{_LOST}onJobFailureReasons", (["PodFailurePolicy"],), _LOST_NODE),
    (f"{_LOST}onJobFailureMessagePatterns", (["has condition DisruptionTarget"],), _LOST_NODE),
)
_SETS, _SCRAPE = ("JobSet", "TrainingRuntime"), "prometheus.io/"
_NO_RUNTIME, _OTHER = "nobody knows its pods", "the controller knows no other"
_ENDS_AT_ONCE = same("", _ALL_AGAIN, {"backoffLimit": 0, "template spec restartPolicy": "Never"})
_SCRAPED = same(_SCRAPE, "nobody sees its metrics", {"scrape": "true", "path": "/metrics"})
_COUNTS, _WAITS = ("parallelism", "completions"), ["python3", "-c"]
# The last says from which number Kueue counts those of a role.
_OWN = ("replicas", "role", kueue.OFFSET_ANNOTATION)
_RECORD = [["python3", each, "record"] for each in (UNPACKED, f"/etc/megatron-eks/{ZIP}")]
_KEPT, _UNKNOWN = "failed pods keep their GPUs", "no API server knows another"
_UNSEEN, _RANK = "meks does not find it as a part", "--node-rank=$(JOB_COMPLETION_INDEX)"


@manifest_guard
def pytorch_jobs(manifests: Manifests) -> Found:
    """Give ranks the shape that the operator takes, and one pod for all (kubeflow/trainer 1.9)."""
    for job in manifests.of("PyTorchJob"):
        spec, roles = job["spec"], job["spec"]["pytorchReplicaSpecs"]
        again = _restarts(run := spec["runPolicy"], "ExitCode")
        yield from run["cleanPodPolicy"].must_be(Rule.CLEAN_POD_POLICY, "Running", "All", why=_KEPT)
        counts = {role: each["replicas"].number or 0 for role, each in roles.items()}
        words = job.main_pod.main["args"].texts if job.main_pod else []
        lost = not spec["elasticPolicy"] and not roles["Master"]
        lost = lost or (sum(counts.values()) == 1 and "--heartbeats" in words)
        found = "no Master, or one pod with arguments for several: ranks never find each other"
        yield from report(Rule.MASTER_REPLICAS, lost, roles, found, "add the one that is missing")
        for role, replica in roles.items():
            count, most = replica["replicas"], {"Master": 1, "Worker": 1 << 31}.get(role, 0)
            found = f"{role} with {written(count.raw)} replicas: refused, or ranks are missing"
            wrong, remedy = not 1 <= counts[role] <= most, "use Master with 1, Worker with others"
            yield from report(Rule.MASTER_REPLICAS, wrong, count, found, remedy)
            yield from replica["restartPolicy"].must_be(Rule.RESTART_POLICY, *again, why=_RESTARTS)
            label = replica["template"]["metadata"]["labels"]["role"]
            yield from label.must_be(Rule.POD_LABEL, role.lower(), why=_UNSEEN) if most else ()
        for pod in job.pods:
            gpus, names = pod.main["resources"]["limits"][GPU].raw or 0, pod.spec["containers"]
            ranks, idle = spec["nprocPerNode"], "GPUs stay idle, or two ranks share one"
            found = f"{written(ranks.raw)} ranks for {gpus} GPUs of {pod.replica}: {idle}"
            other, remedy = ranks.raw not in (str(gpus), "auto", "gpu"), "give both one number"
            yield from report(Rule.PROCESSES_PER_NODE, other, ranks, found, f"{remedy}, as a text")
            wrong = [each["name"].text for each in names].count("pytorch") != 1
            found = "not one container named 'pytorch': the webhook refuses the job"
            yield from report(Rule.CONTAINER_NAME, wrong, names, found, "name one 'pytorch'")
            for word in (each for each in pod.main["command"] if _LAUNCHER.fullmatch(each.text)):
                found = f"{word.text} overrides what the operator sets for each pod"
                yield word.finding(Rule.RENDEZVOUS_FLAG, found, "remove it")
        both = (roles["Master"], roles["Worker"])
        for there, here in differences(*both) if all(both) else ():
            found = f"{written(here.raw)} here and {written(there.raw)} in the Master: "
            found += "ranks that differ hang, or some are refused"
            other, remedy = here.name not in _OWN, "write the same for both"
            yield from report(Rule.REPLICAS_DIFFER, other, here, found, remedy)
        yield from _name(job, f"-worker-{int(roles['Worker']['replicas'].number or 1) - 1}")


@manifest_guard
def indexed_jobs(manifests: Manifests) -> Found:
    """Start all ranks of a Job at once, with index and name (Kubernetes, "Indexed Job")."""
    for job in manifests.of("Job"):
        spec, pod = job["spec"], job.pods[0]
        count, starts = spec["completions"].raw or spec["parallelism"].raw, pod.main["command"]
        if "torchrun" in starts.texts:
            yield from _torchrun(manifests, job, pod, count)
        elif not spec["completionMode"] and (spec["completions"].number or 0) <= 1:
            continue
        rows = [(each, (count,), "ranks wait for those that it leaves out") for each in _COUNTS]
        yield from spec.must_hold(Rule.JOB_FIELDS, *_INDEXED, *rows)
        yield from _name(job, f"-{count}")


@manifest_guard
def jobsets(manifests: Manifests) -> Found:
    """Make the first rank that fails end its Job, and so start all ranks again (JobSet 0.12)."""
    for job in manifests.of(*_SETS):
        spared = _SPARED if job.run["failurePolicy"]["maxRestarts"].number else ()
        yield from job.run.must_hold(Rule.JOB_FIELDS, *_SET, *spared)
        for part in job.run["replicatedJobs"]:
            yield from part.must_hold(Rule.JOB_FIELDS, ("replicas", (None, 1), _ONE_JOB))
            spec, pod = part["template"]["spec"], job.pods[0]
            count = spec["completions"].raw
            rows = [(each, (count,), "ranks wait for those that it leaves out") for each in _COUNTS]
            yield from spec.must_hold(Rule.JOB_FIELDS, *_INDEXED, *_ENDS_AT_ONCE, *rows)
            yield from _failure_policy(spec, pod, lost_node="FailJob")
            yield from _meeting(pod, count, f"{job.name}-{part['name'].text}-0-0.{job.name}")
            yield from _name(job, f"-{part['name'].text}-0-{count}-xxxxx")
    for job in manifests.of("TrainJob"):
        ref, of_job = job["spec"]["runtimeRef"], WORKLOADS["TrainJob"]
        nodes = job["spec"]["trainer"]["numNodes"]
        why = "the runtime's command has another --nnodes"
        named = [("kind", (of_job.runtime,), _NO_RUNTIME), ("name", (job.name,), _NO_RUNTIME)]
        yield from ref.must_hold(Rule.JOB_FIELDS, *named, ("apiGroup", (of_job.group,), _OTHER))
        for runtime in manifests.of("TrainingRuntime"):
            if runtime.name == job.name and runtime.pods:
                yield from nodes.must_be(Rule.JOB_FIELDS, None, runtime.wanted, why=why)
                row = (of_job.job_label, (job.name,), "meks and the ranks' policy miss its pods")
                yield from runtime.pods[0].metadata["labels"].must_hold(Rule.POD_LABEL, row)


def _torchrun(manifests: Manifests, job: Object, pod: Pod, count: Json) -> Found:
    service = manifests.named("Service", job.name, job.namespace)
    found = f"no Service {job.name}: the other ranks never find rank 0"
    yield from report(Rule.SERVICE, not service, pod.spec["subdomain"], found, "add it, headless")
    if service:
        yield from service["spec"]["clusterIP"].must_be(Rule.SERVICE, "None", why="it names no pod")
        early = service["spec"]["publishNotReadyAddresses"]
        yield from early.must_be(Rule.RANKS_WAIT, YES, why="rank 0 has no name yet")
    yield from pod.spec.must_hold(Rule.SERVICE, ("subdomain", (job.name,), "ranks lack names"))
    yield from _meeting(pod, count, f"{job.name}-0.{job.name}")


def _meeting(pod: Pod, count: Json, address: str) -> Found:
    command = pod.main["command"]
    options = {f"--nnodes={count}", f"--master-addr={address}", _RANK}
    options |= {f"--nproc-per-node={pod.main['resources']['limits'][GPU].quantity}"}
    given = {text.replace("_", "-") for text in command.texts}
    for option in sorted({each for each in options if each.replace("_", "-") not in given}):
        found = f"torchrun without {option}: the ranks never meet"
        yield command.finding(Rule.RENDEZVOUS_FLAG, found, f"write {option}")


@manifest_guard
def ends(manifests: Manifests) -> Found:
    """Try a job a few times, and not for mistakes that a try repeats (Kubernetes, "Jobs")."""
    for job in manifests.of(*WITH_PODS):
        api = WITH_PODS[job.kind].api_version
        yield from job["apiVersion"].must_be(Rule.API_VERSION, api, why=_UNKNOWN)
        limits = job["spec"]["runPolicy"] if job.kind == "PyTorchJob" else job.run
        priority = job.main_pod.spec["priorityClassName"].text if job.main_pod else ""
        for name, least, usual, why in _LIMITS:
            of_ranks = job.kind in _SETS and job.holders and name[0] != "t"
            given = (job.holders[0] if of_ranks else limits)[name]
            needed = given or not least or (priority and name[0] == "t") or "-valid" in priority
            wrong = needed and (-1 if given.number is None else given.number) < least
            found, remedy = f"{name} is {written(given.raw)}: {why}", f"write such as {usual}"
            lost = least and not given
            yield from report(Rule.JOB_FIELDS, wrong, given, found, remedy, warns=lost)
        run = job.kind == "PyTorchJob" and priority and "-valid" not in priority
        for name, least, why in _OF_RUNS if run else ():
            given, found = limits[name], f"{name} is {written(limits[name].raw)}: {why}"
            row = ((given.number or least) < least or given.raw == 0, given, found)
            yield from warn(Rule.JOB_FIELDS, *row, "write 1 or more" if least == 1 else "remove it")
        if job.kind == "Job":
            yield from _failure_policy(job["spec"], job.pods[0])


def _failure_policy(spec: Value, pod: Pod, lost_node: str = "Ignore") -> Found:
    rules, names = spec["podFailurePolicy"]["rules"], [e["name"].text for e in pod.containers]
    indexed = spec["completions"] and not rules and lost_node == "Ignore"
    again = _restarts(spec) if indexed else ("Never",)
    yield from pod.spec["restartPolicy"].must_be(Rule.RESTART_POLICY, *again, why=_RESTARTS)
    if again == ("Never",):
        own = {kind: next((e for e in rules if e[kind].raw), rules) for kind in _RULES}
        of_lost = ("action", (lost_node,), _LOST_NODE)
        for kind, fixed in _RULES.items():
            rows = (of_lost, *fixed) if kind == "onPodConditions" else fixed
            if own[kind] is not rules or "pytorch" in names:
                yield from own[kind].must_hold(Rule.JOB_FIELDS, *rows, warns=True)
        codes, place = (own["onExitCodes"]["onExitCodes"][e] for e in ("values", "containerName"))
        other = "pytorch" in names and any(each.raw not in FINAL_EXIT_CODES for each in codes)
        found, usual = "it ends what another try may mend", f"name none but {[*FINAL_EXIT_CODES]}"
        yield from warn(Rule.JOB_FIELDS, other, codes, found, usual)
        lost, found = codes and place.text not in names, f"no such container: {_RETRIED}"
        yield from report(Rule.JOB_FIELDS, lost, place, found, f"name one of {names}")


@manifest_guard
def job_parts(manifests: Manifests) -> Found:
    """Label what belongs to a job (docs/commands.md), and wait for policies (EKS, "Limit Pod")."""
    parts: dict[str, list[Object]] = {}
    for each in manifests.of("ConfigMap", "Service", "NetworkPolicy", "TrainJob"):
        parts.setdefault(each.name, []).append(each)
    for job in manifests.of(*WITH_PODS):
        pod = job.main_pod
        if pod is None or not pod.spec:
            continue
        app, ours = pod.metadata["labels"]["app"], pod.main["name"].text == "pytorch"
        names = {job.name, f"ranks-of-{job.name}"}
        names |= {v["configMap"]["name"].text for v in pod.spec["volumes"]} - {"ca-bundle"}
        rows = [("app", (app.raw,) if app else (), _UNSEEN)]
        yield from pod.metadata["labels"].must_hold(Rule.POD_LABEL, *rows)
        rows += [("megatron-eks/job", (job.name,), _UNSEEN)] if ours else []
        for each in (job, *(each for name in sorted(names) for each in parts.get(name, ()))):
            yield from each.labels.must_hold(Rule.POD_LABEL, *rows)
            if each.kind == "ConfigMap":
                why = "ranks that start again get other files than those that go on"
                fixed, others = each.body["immutable"], not each.name.startswith(f"{job.name}-")
                yield from fixed.must_be(Rule.JOB_FIELDS, YES, why=why, warns=others)
        notes = pod.metadata["annotations"]
        if any(key.startswith(_SCRAPE) for key, _ in notes.items()):
            ports = [str(e["containerPort"].raw) for e in pod.main["ports"]]
            at = (f"{_SCRAPE}port", (*ports,), "nothing listens there")
            yield from notes.must_hold(Rule.MONITOR, *_SCRAPED, at)
        words, logs = pod.main["command"], rf"/[^ ]+/logs/{re.escape(job.name)} [1-9]\d*"
        program, folder = words.texts[:3], " ".join(words.texts[3:5])
        lost = ours and not (program in _RECORD and re.fullmatch(logs, folder))
        found = f"not {' '.join(_RECORD[0])} /shared/logs/JOB DAYS first: nobody learns its end"
        yield from warn(Rule.IDLE, lost, words, found, "begin the command so")
        listed, first = pod.spec["initContainers"], pod.spec["initContainers"][0]
        waits = first["name"].text == "wait-for-policies" and first["command"].texts[:2] == _WAITS
        found = "no init container wait-for-policies: the pod begins while others reach it"
        yield from warn(Rule.JOB_FIELDS, ours and not waits, listed, found, "add it as first one")
        image = pod.main["image"]
        other = ours and waits and first["image"].raw != image.raw and PINNED.fullmatch(image.text)
        found = "another image than the job's: each node pulls both, or one of them is not there"
        yield from warn(Rule.JOB_FIELDS, other, first["image"], found, "use the job's")


def _restarts(policy: Value, *others: str) -> tuple[str, ...]:
    several = (policy["backoffLimit"].number or 0) > 1
    return ("OnFailure", *others) if several else ("OnFailure", "Never")


def _name(job: Object, suffix: str) -> Found:
    wrong = not _NAME.fullmatch(job.name) or len(job.name + suffix) > _LONGEST_NAME
    found = f"a pod or Service {job.name}{suffix} has no DNS name: it is refused"
    yield from report(Rule.JOB_NAME, wrong, job["metadata"]["name"], found, "use a-z and dashes")
