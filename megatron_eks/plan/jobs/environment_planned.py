"""The verdict on a variable of a job file that the plan sets too."""

from collections.abc import Mapping

from megatron_eks.catalog.allocator import ALLOCATOR, options
from megatron_eks.catalog.environment import (
    REMOVE,
    Policy,
    advised_against,
    allowed,
)
from megatron_eks.catalog.environment_values import off_efa
from megatron_eks.catalog.environment_words import is_subsystem
from megatron_eks.catalog.instances import InstanceType
from megatron_eks.config.job import GpuJob, Job, NcclTestJob
from megatron_eks.plan.jobs.environment import NCCL_LOG, collectives

_SEGMENTS = "expandable_segments:True"
_BUFFERS = frozenset({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"})
PLANNED = {
    **collectives(""),
    **dict.fromkeys(_BUFFERS, collectives("")["TORCH_NCCL_TRACE_BUFFER_SIZE"]),
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "TORCH_FR_DUMP_ON_TIMEOUT": "1",
}
"""What the plan sets, by every name that the programs know it by."""

# Subsystems in which NCCL and its EFA plugin name their network.
_READ = frozenset({"INIT", "NET"})
# NCCL user guide, "NCCL_DEBUG"; NCCL compares without regard to case.
_QUIET = frozenset({"ABORT", "VERSION", "WARN"})


def beside_plan(job: Job, name: str, value: str, instance: InstanceType | None) -> Policy | None:
    """Judge what the plan sets too, where the job file's value breaks nothing."""
    if not isinstance(job, GpuJob):
        return None
    if PLANNED.get(name) == value or (name in ALLOCATOR and options(value) == options(_SEGMENTS)):
        return advised_against("the plan sets it to this already")
    if name in ALLOCATOR:
        return _allocator(name, value)
    if name in _BUFFERS and value.isdigit() and int(value) > 0:
        return advised_against(
            f"the plan sets it to {PLANNED[name]}, which shows what ranks did last"
        )
    logs = {"NCCL_DEBUG": _log_level, "NCCL_DEBUG_SUBSYS": _subsystems}.get(name)
    return logs(job, value, instance) if logs else None


def _allocator(name: str, value: str) -> Policy:
    """Judge options of torch's allocator, which take the place of those of the plan.

    c10/core/AllocatorConfig.h: of the two names 2.9 asks for the new one first, 2.15 for the old.
    """
    given = options(value)
    if name != "PYTORCH_ALLOC_CONF":
        reason = "the plan sets PYTORCH_ALLOC_CONF, and which of the two counts depends on torch"
        return advised_against(reason, f"use PYTORCH_ALLOC_CONF: '{value}'")
    if given.get("expandable_segments") == "True":
        return allowed("it keeps what the plan sets")
    reason = f"it takes the place of the plan's {_SEGMENTS}, without which memory fragments"
    instead = f"add {_SEGMENTS}, unless something needs it off"
    return advised_against(reason, instead)


def _log_level(job: GpuJob, value: str, instance: InstanceType | None) -> Policy:
    """Judge how much NCCL logs: it goes to a file, and not among a job's own lines."""
    # NCCL, `src/debug.cc`: levels in any case. A test of the network is where TRACE is looked at.
    if value.upper() == "INFO" or (value.upper() == "TRACE" and isinstance(job, NcclTestJob)):
        return allowed("it keeps what the start-up guard reads")
    if value.upper() == "TRACE":
        return advised_against("INFO says all that the start-up guard reads")
    says = f"at {value} NCCL's log does not say which network it uses"
    if value.upper() not in _QUIET:
        says = f"NCCL knows no level {value!r}, and then logs nothing"
    return advised_against(f"{says}{_unwatched(job, instance)}")


def _subsystems(job: GpuJob, value: str, instance: InstanceType | None) -> Policy:
    """Judge of what NCCL logs: it goes by this value in place of the plan's."""
    missing = _READ - _logged(value)
    if not missing:
        return allowed("it keeps what the start-up guard reads")
    left_out = " and ".join(sorted(missing))
    reason = f"{value!r} leaves out {left_out}, where NCCL says whether it uses EFA"
    instead = REMOVE if value.startswith("^") or not value else f"write {_with_read(value)}"
    return advised_against(f"{reason}{_unwatched(job, instance)}", instead)


def _logged(value: str) -> frozenset[str]:
    """Return which of the subsystems that the start-up guard reads are logged.

    NCCL, `src/debug.cc`: names without spaces, between commas and in any case; `^` before the
    first one stands for all but these.
    """
    names = set(value.upper().removeprefix("^").split(","))
    named = _READ if "ALL" in names else _READ & names
    return _READ - named if value.startswith("^") else named


def shows_efa(env: Mapping[str, str]) -> bool:
    """Tell whether a job file leaves NCCL on EFA, and its log where the start-up guard reads it.

    `megatron_eks.programs.start.watch` ends ranks that do not say so, and may not look where they
    were told to do otherwise.
    """
    level = env.get("NCCL_DEBUG", "INFO").upper()
    said = level in {"INFO", "TRACE"} and _logged(env.get("NCCL_DEBUG_SUBSYS", "ALL")) == _READ
    log = env.get("NCCL_DEBUG_FILE", NCCL_LOG) == NCCL_LOG
    return said and log and not off_efa(env) and env.get("FI_EFA_IFACE", "all") == "all"


def _unwatched(job: GpuJob, instance: InstanceType | None) -> str:
    """Say what is given up: of several nodes that have EFA the guard reads NCCL's log."""
    guarded = job.nodes > 1 and not isinstance(job, NcclTestJob)
    efa = instance is None or instance.efa_interfaces > 0
    return ", and the start-up guard does not look for EFA" if guarded and efa else ""


def _with_read(value: str) -> str:
    """Add what the guard reads to a list of subsystems."""
    names = [name.strip() for name in value.split(",")]
    others = [each for each in names if each.upper() not in _READ and is_subsystem(each)]
    return ",".join((*sorted(_READ), *others))
