"""What all training programs have in common at their start: EFA is counted, a watcher starts."""

import argparse
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checks.efa_system import System
from megatron_eks.programs.program import Finding, Report, error, usage_error, warning
from megatron_eks.programs.start.companion import Companion

_DEFAULT_TIMEOUT_MINUTES = 10.0
# torch's and Megatron's own.
_MARGIN_SECONDS = 60.0
# Ranks wait for the slowest in a collective.
_READING_SHARE = 0.6
_LEAVE_SECONDS = 5.0
_watchers: list[Companion] = []


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that the plan fills in for a job on several nodes."""
    add = parser.add_argument_group("start-up guard").add_argument
    efa = "EFA devices that this pod must have, and NCCL must use; 0, the default, checks nothing"
    add("--expect-efa", type=program.count, default=0, metavar="N", help=efa)
    direct = "warn if NCCL reaches other nodes without GPUDirect RDMA"
    add("--expect-gpu-direct", action="store_true", help=direct)
    hearts = "on shared storage, by which nodes notice that another one was lost; without it the "
    hearts += "collectives' timeout has to end them"
    add("--heartbeats", type=Path, metavar="DIR", help=hearts)
    ends = "whether ranks with a wrong network, a lost node or no progress end (see watch.py)"
    add("--watch", choices=("stop", "off"), default="stop", help=ends)


def check_efa(options: argparse.Namespace, system: System) -> Iterator[Finding]:
    """Count the EFA devices that the pod can use.

    Ranks without a GPU talk over gloo, which uses TCP wherever it runs: nothing is expected then.
    """
    expected: int = options.expect_efa
    if not expected:
        return
    if not any((system.root / "dev").glob("nvidia[0-9]*")):
        options.expect_efa = 0
        found = f"no GPU is in this pod, so none of {expected} is looked for"
        yield warning("EFA devices", found, "right for a trial on CPUs")
        return
    usable = sum(device.usable for device in system.devices())
    if usable < expected:
        found = f"{usable} are usable in this pod, {expected} expected"
        yield error("EFA devices", found, "run efa_check on this node, which says why")


def start(
    options: argparse.Namespace, environment: Mapping[str, str], timeout_minutes: float | None
) -> Iterator[Finding]:
    """Count EFA devices and start the watcher, on the first rank of a node; others do nothing.

    Call it first: the other nodes' watchers wait for this one's. `timeout_minutes` is how long a
    collective may take.
    """
    if options.watch == "off" or environment.get("LOCAL_RANK", "0") != "0":
        return
    yield from check_efa(options, System(Path("/"), environment))
    seconds = 60 * (timeout_minutes or _DEFAULT_TIMEOUT_MINUTES)
    words = [
        *(sys.executable, "-m", "megatron_eks.programs.start.watch"),
        f"--rank={os.getpid()}",
        f"--node={environment.get('GROUP_RANK', '0')}",
        f"--nodes={environment.get('GROUP_WORLD_SIZE', '1')}",
        # For the other nodes a watcher that died and was started again is the same one.
        f"--start={uuid.uuid4().hex}",
        f"--expect-efa={options.expect_efa}",
        f"--start-seconds={seconds}",
        f"--idle-seconds={seconds + _MARGIN_SECONDS}",
    ]
    words += ["--expect-gpu-direct"] if options.expect_gpu_direct else []
    words += [f"--heartbeats={options.heartbeats}"] if options.heartbeats is not None else []
    try:
        # torchrun ends a rank's whole process group; the watcher has to tell the other nodes.
        _watchers.append(Companion("watch", words, start_new_session=True))
    except OSError as problem:
        yield warning("watch", str(problem), "training goes on unwatched")


def leave() -> None:
    """End the watcher: the training is over, and a rank that only waits is not to be ended."""
    while _watchers:
        with suppress(subprocess.TimeoutExpired):
            _watchers.pop().end().wait(_LEAVE_SECONDS)


def reading_deadline(timeout_minutes: float | None) -> float:
    """Return until when, on the monotonic clock, ranks may read what the run resumes from."""
    return time.monotonic() + _READING_SHARE * 60 * (timeout_minutes or _DEFAULT_TIMEOUT_MINUTES)


def refuse(name: str, report: Report) -> int:
    """Say why a trainer does not begin, once on each node; return its exit code."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        report.write_findings()
    if os.environ.get("RANK", "0") == "0":
        report.write_summary({"program": name, "status": "refused"})
    return report.exit_code


def require(name: str, package: str) -> None:
    """End a trainer whose modules import what the image does not have."""
    if find_spec(package) is None:
        found = "not in the image, and kinds fsdp and ddp do not start without it"
        report = Report([usage_error(package, found, "install it there (docs/images.md)")])
        sys.exit(refuse(name, report))
