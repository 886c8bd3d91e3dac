"""Rules over Volcano's jobs: gangs that are never placed, and tasks that nobody finds."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_VOLCANO = "batch.volcano.sh"
_TASK_FLAGS = ("--master", "--worker", "--ps")


def members(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a gang of more pods than a Volcano job has.

    volcano, pkg/webhooks/admission/jobs/validate: 'minAvailable' should not be greater than the
    replicas of all tasks, nor that of a task than its own.
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
