"""`meks verify --job NAME`: what a healthy training run shows, item by item."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from megatron_eks.catalog.program_places import PACKAGE
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.kubernetes.client import Client, Object
from megatron_eks.ops.checks import Check, in_kubernetes, judged, report
from megatron_eks.ops.console import Console
from megatron_eks.ops.jobs import room
from megatron_eks.ops.jobs.status import ranks_of
from megatron_eks.ops.jobs.verify import log_of
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.kube.jobs import Rank
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.programs.run_log import steps_of

_EFA = re.compile(
    r"NET/OFI Selected [Pp]rovider is (\S+?)[, ]|Using network (AWS Libfabric|Socket)"
)
_SAVED = re.compile("saved checkpoint", re.IGNORECASE)


@dataclass(frozen=True)
class Run:
    """A job, as it was read."""

    name: str
    ranks: Sequence[Rank]
    pod: Object
    """What all ranks are made of."""
    log: str

    def told(self, code: StrEnum, text: str, remedy: str, level: Level = Level.ERROR) -> Finding:
        """Return a finding about it."""
        return in_kubernetes(code, (f"Job/{self.name}",), text, remedy, level)


def run(client: Client, plan: ClusterPlan, name: str, output: str, console: Console) -> int:
    """Print the checklist of a job; return 4 if an item fails."""
    job = jobs.get(client, plan.platform.namespace, name)
    ranks = ranks_of(client, job)
    # Rank 0's log and the last rank's: Megatron logs its steps there.
    log = "".join((log_of(client, job), log_of(client, job, last=True)))
    found = Run(name, ranks, job.pod_specs[0][1], log)
    return report(plan, judged(CHECKLIST, found), output, console, job=name)


def image(found: Run) -> Iterator[Finding]:
    """Ask for an image named by its digest; whether ranks have it, `running` says."""
    name = found.pod["containers"][0]["image"]
    if "@sha256:" not in name:
        text, remedy = f"{name} may be another image tomorrow", "name it by its digest: meks build"
        yield found.told(Code.CHECK_ENDED_BADLY, text, remedy, Level.WARNING)


def running(found: Run) -> Iterator[Finding]:
    """Ask for all ranks."""
    for rank in found.ranks:
        phase = rank.pod.phase if rank.pod else "Missing"
        if phase not in {"Running", "Succeeded"}:
            why = f": {rank.pod.reason}" if rank.pod and rank.pod.reason else ""
            text = f"rank {rank.number} is {phase}{why}"
            yield found.told(Code.CHECK_ENDED_BADLY, text, f"meks status {found.name}")


def network(found: Run) -> Iterator[Finding]:
    """Ask what NCCL talks over; our programs end a job whose NCCL does not use EFA."""
    if len(found.ranks) < 2 or not room.requests(found.pod).get(room.EFA):  # noqa: PLR2004 -- a network
        return
    names = [next(filter(None, each)) for each in _EFA.findall(found.log)]
    bad = [each for each in names if each not in {"efa", "AWS Libfabric"}]
    container = found.pod["containers"][0]
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    guarded = any(word.startswith(PACKAGE) for word in words) and bool(steps_of(found.log))
    if bad:
        text = f"NCCL uses {bad[0]}, which has one network card of the node"
        remedy = f"meks verify --check efa-check; meks logs {found.name}"
        yield found.told(Code.BELOW_MARK, text, remedy)
    elif not names and not guarded:
        text = "nothing in the log tells what NCCL talks over"
        remedy = "set NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,NET"
        if any(each.get("name") == "NCCL_DEBUG_FILE" for each in container.get("env") or ()):
            # The plan has set both, and its log is in a file of the pod.
            remedy = f"read NCCL's log, in the file NCCL_DEBUG_FILE: meks shell {found.name}"
        yield found.told(Code.NOT_CHECKED, text, remedy, Level.WARNING)


def loss(found: Run) -> Iterator[Finding]:
    """Ask for a loss that falls."""
    steps = steps_of(found.log)
    if not steps:
        text, remedy = "no step is logged yet", f"meks logs {found.name} --tail 50"
        yield found.told(Code.NOT_CHECKED, text, remedy, Level.WARNING)
        return
    # As many at each end as smooth out single batches.
    size = max(1, len(steps) // 4)
    first, last = (sum(each.loss for each in part) / size for part in (steps[:size], steps[-size:]))
    if len(steps) > 1 and not last < first:
        text = f"the loss went from {first:g} to {last:g} in the {len(steps)} last steps logged"
        remedy = "near its end that is usual; else look at data, learning rate and NaN"
        level = Level.ERROR if math.isnan(last) else Level.WARNING
        yield found.told(Code.BELOW_MARK, text, remedy, level)


def checkpoints(found: Run) -> Iterator[Finding]:
    """Ask for a checkpoint."""
    if not _SAVED.search(found.log):
        text = "the last lines of its log tell of no checkpoint"
        remedy = "see how often its program saves (checkpoint.interval where the job file has it), "
        remedy += "and the directory on the file system"
        yield found.told(Code.NOT_CHECKED, text, remedy, Level.WARNING)


CHECKLIST: tuple[Check[Run], ...] = (
    Check("image pinned", image),
    Check("all ranks run", running),
    Check("NCCL over EFA", network),
    Check("loss falls", loss),
    Check("checkpoints written", checkpoints),
)
