"""Rules over Volcano's jobs: gangs that are never placed, and tasks that nobody finds."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.jobs.rendezvous import launcher_flags, left_of
from megatron_eks.rules.objects.manifest_set import GROUP_NAME, Found, ManifestSet, may_share
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_VOLCANO = "batch.volcano.sh"
_LABEL = "scheduling.x-k8s.io/pod-group"
_EVENTS = (
    *("*", "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed"),
    "JobUpdated",
)
_ACTIONS = (
    *("AbortJob", "CompleteJob", "RestartJob", "RestartPartition", "RestartPod", "RestartTask"),
    *("ResumeJob", "TerminateJob"),
)
# Each of these makes the Service.
_SERVING = frozenset({"svc", "pytorch", "tensorflow", "mpi", "ray"})
_TASK_FLAGS = ("--master", "--worker", "--ps")


def members(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a gang of more pods than a Volcano job has, and warn of one of fewer than its ranks.

    volcano, pkg/webhooks/admission/jobs/validate: 'minAvailable' should not be greater than the
    replicas of all tasks, nor that of a task than its own. Volcano, "VolcanoJob", minAvailable:
    the job runs as soon as so many of its pods have a place.
    """
    if (manifest.group, manifest.kind) != (_VOLCANO, "Job"):
        return
    total, known = 0, True
    for index, value in enumerate(items(manifest.spec.get("tasks")) or []):
        task = mapping(value) or {}
        given = task.get("replicas")
        count = 1 if is_absent(given) else number(given)
        least = number(task.get("minAvailable"))
        if count is None:
            known = False
            continue
        total += count
        if least is not None and least > count:
            found = f"{least} pods at once, and the task has {count}: the webhook refuses the job"
            path = ("spec", "tasks", index, "minAvailable")
            yield manifest.find(Code.IDLE, path, found, f"write {count}")
    wanted = number(manifest.spec.get("minAvailable"))
    if known and total and wanted is not None and wanted > total:
        found = f"{wanted} pods at once, and the job has {total}: the webhook refuses the job"
        yield manifest.find(Code.IDLE, ("spec", "minAvailable"), found, f"write {total}")
    ranks = sum(1 if pod.replicas is None else pod.replicas for pod in _ranks(manifest))
    if wanted is not None and 0 < wanted < ranks:
        found = f"{wanted} pods at once, and {ranks} ranks wait for each other: some hold their "
        found += "GPUs while the others find none"
        place, remedy = ("spec", "minAvailable"), f"write {total}"
        yield manifest.find(Code.IDLE, place, found, remedy, Level.WARNING)


def placing(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a Volcano job that another scheduler places, or whose pods never end.

    Volcano, "VolcanoJob", schedulerName: the default scheduler knows no gang, and places pods one
    by one; with restartPolicy Always no task completes.
    """
    if (manifest.group, manifest.kind) != (_VOLCANO, "Job"):
        return
    if manifest.spec.get("schedulerName") == "default-scheduler":
        found = "the default scheduler places pods one by one, and reads no minAvailable"
        place = ("spec", "schedulerName")
        yield manifest.find(Code.IDLE, place, found, "write volcano", Level.WARNING)
    for pod in manifest.pods:
        ranks = any(each.has_launcher for each in pod.containers)
        if ranks and pod.spec.get("restartPolicy") == "Always":
            found = "Always starts a rank again that has ended well: the job never completes"
            path = (*pod.path, "restartPolicy")
            yield Finding(Code.NEVER_ENDS, path, found, "write OnFailure, or Never", Level.WARNING)


def _ranks(manifest: Manifest) -> Iterator[Pod]:
    """Return the pods whose launcher waits for a fixed number of nodes."""
    for pod in manifest.pods:
        for container in pod.containers:
            nodes = [value for _, name, value in launcher_flags(container) if name == "nnodes"]
            if nodes and (number(nodes[0]) or 0) > 1:
                yield pod
                break


def policies(manifest: Manifest) -> Iterator[Finding]:
    """Require events and actions that Volcano knows.

    volcano, pkg/webhooks/admission/jobs/validate/util.go: policyEventMap and policyActionMap.
    """
    if (manifest.group, manifest.kind) != (_VOLCANO, "Job"):
        return
    holders: list[tuple[Path, Json]] = [(("spec",), dict(manifest.spec))]
    for index, value in enumerate(items(manifest.spec.get("tasks")) or []):
        holders.append((("spec", "tasks", index), value))
    for path, holder in holders:
        for index, value in enumerate(items((mapping(holder) or {}).get("policies")) or []):
            policy = mapping(value) or {}
            for key, known in (("event", _EVENTS), ("action", _ACTIONS)):
                given = text(policy.get(key))
                if given is None or given in known or is_placeholder(given):
                    continue
                close = get_close_matches(given, known, 1, 0)[0]
                found = f"{shown(given)} is no {key} of a policy: the webhook refuses the job"
                place = (*path, "policies", index, key)
                yield manifest.find(Code.WRONG_VALUE, place, found, f"did you mean {close}?")


def groups(together: ManifestSet) -> Iterator[Found]:
    """Refuse a PodGroup of more pods than name it, and warn of one that no scheduler reads.

    kubernetes-sigs/scheduler-plugins, coscheduling: the label, minMember, and schedulerName;
    Volcano, "PodGroup": the annotation.
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            default = text(pod.spec.get("schedulerName")) in {None, "default-scheduler"}
            if default and _LABEL in pod.labels:
                found = "a label of a pod group, and the default scheduler, which reads none"
                path = (*pod.path[1:], "schedulerName")
                remedy = "name the scheduler with the coscheduling plugin"
                yield manifest, manifest.find(Code.IDLE, path, found, remedy, Level.WARNING)
    for group in together.of("PodGroup"):
        least, members = number(group.spec.get("minMember")), 0
        of_volcano = group.group == "scheduling.volcano.sh"
        for manifest in together.objects:
            for pod in manifest.pods if may_share(group, manifest) else ():
                said = pod.annotations.get(GROUP_NAME) if of_volcano else pod.labels.get(_LABEL)
                if said is not None and said == group.name:
                    members += 1 if pod.replicas is None else pod.replicas
        if least is not None and 0 < members < least:
            found = f"{least} pods at once, and {members} are of this group: none is ever placed"
            yield group, group.find(Code.IDLE, ("spec", "minMember"), found, f"write {members}")


def unplugged(manifest: Manifest) -> Iterator[Finding]:
    """Refuse what only a plugin gives the pods of a Volcano job, where it is not switched on.

    Volcano, "Job plugins": env sets VC_TASK_INDEX, svc makes the job's Service and the lists of
    hosts; volcano, pkg/controllers/job/plugins/distributed-framework/pytorch: it needs svc itself.
    """
    if (manifest.group, manifest.kind) != (_VOLCANO, "Job"):
        return
    given = mapping(manifest.spec.get("plugins"))
    for pod in manifest.pods if given is not None else ():
        for container in pod.containers:
            own = {each.name for each in container.variables}
            for name, plugin in (("VC_TASK_INDEX", "env"), ("VK_TASK_INDEX", "env")):
                if name in container.line and plugin not in (given or {}) and name not in own:
                    place, word = next(each for each in container.words if name in each[1])
                    found = f"reads {name}, which the plugin {plugin} sets: "
                    found += left_of(container, name, word)
                    remedy = f"add {plugin}: [] under spec.plugins"
                    yield Finding(Code.JOB_FIELDS, place, found, remedy)
            named = [each for each in container.variables if each.name == "MASTER_ADDR"]
            for each in named if _SERVING.isdisjoint(given or {}) else ():
                if (each.value or "").partition(".")[2].partition(".")[0] == manifest.name:
                    found = f"{shown(each.value)}: no Service {manifest.name}, which the plugin svc"
                    found += " makes: DNS has no such name"
                    place = (*container.path, "env", each.index, "value")
                    remedy = "add svc: [] under spec.plugins"
                    yield Finding(Code.RENDEZVOUS_FLAG, place, found, remedy, Level.WARNING)


def plugins(manifest: Manifest) -> Iterator[Finding]:
    """Require of the names in a plugin's arguments that a task bears them.

    Volcano, "PyTorch Plugin" and "MPI Plugin": by these it sets MASTER_ADDR, RANK and WORLD_SIZE;
    without such a task it sets none.
    """
    if (manifest.group, manifest.kind) != (_VOLCANO, "Job"):
        return
    tasks = {
        text((mapping(each) or {}).get("name")) for each in items(manifest.spec.get("tasks")) or []
    }
    for name in ("pytorch", "mpi", "tensorflow"):
        listed = items((mapping(manifest.spec.get("plugins")) or {}).get(name)) or []
        for index, value in enumerate(listed):
            flag, _, task = (text(value) or "").partition("=")
            if flag not in _TASK_FLAGS or not task or is_placeholder(task) or task in tasks:
                continue
            if flag == "--worker" and len(tasks) == 1:
                continue
            found = f"{shown(value)}, and no task is called so: no rank is told where it is"
            there = ", ".join(sorted(filter(None, tasks)))
            path = ("spec", "plugins", name, index)
            yield manifest.find(Code.MISSING_OBJECT, path, found, f"there: {there}")
