"""What the end and the log of a check on the hardware mean, held against its mark."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.ops.checks import Result, in_kubernetes
from megatron_eks.programs.run_log import steps_of

_DRIVER = re.compile(r"Driver Version:\s*(\S+)\s+CUDA(?: UMD)? Version:\s*([\d.]+)")
# What nvidia-smi writes in the place of a value that the GPU does not give any more.
_BROKEN = re.compile(
    r"\bERR!|Unable to determine the device handle|GPU is lost|No devices were found"
)
_NUMBERS = {
    "allreduce_bench": ("best_busbw_gb_s", "best_bytes", "pass_busbw_gb_s", "ranks"),
    "efa_check": ("devices", "expected", "libfabric_devices"),
    "storage_bench": ("write_mb_s", "read_mb_s", "free_gib", "mount_type"),
}
_MARKED = ("busbw", "throughput")
_FINDING = re.compile(r"(error|warning) (.*?): (.*) - (.*)", re.DOTALL)


@dataclass(frozen=True)
class Ended:
    """A check that has run."""

    name: str
    """Of the job."""
    phase: str
    """Succeeded, Failed, or nothing where it has not come to an end."""
    message: str
    log: str
    """The end of what its first rank printed."""


def verdict(ended: Ended, mark: float | None) -> Result:
    """Judge a check; `mark` is what its throughput must reach, where there is one."""
    findings = tuple(dict.fromkeys(_judge(ended, mark)))
    return Result(ended.name, findings, measured=measured(ended.log))


def measured(log: str) -> Mapping[str, Json]:
    """Return the numbers that a log holds."""
    if found := _DRIVER.search(log):
        return {"driver": found[1], "cuda": found[2]}
    if summary := last_summary(log):
        names = _NUMBERS.get(str(summary.get("program")), ())
        return {name: summary[name] for name in names if name in summary}
    steps = steps_of(log)
    if not steps:
        return {}
    first, last = steps[0], steps[-1]
    return {"steps": last.step, "first_loss": first.loss, "last_loss": last.loss}


def last_summary(log: str) -> Mapping[str, Json] | None:
    """Return the JSON line with which a program of ours ends."""
    for line in reversed(log.splitlines()):
        with suppress(ValueError):
            if line.startswith("{") and '"program"' in line:
                found: dict[str, Json] = json.loads(line)
                return found
    return None


def _judge(ended: Ended, mark: float | None) -> Iterator[Finding]:
    path: Path = (f"Job/{ended.name}",)
    summary = last_summary(ended.log) or {}
    told = list(_told(summary, path))
    yield from told
    if not ended.phase:
        remedy = f"meks status {ended.name}; meks logs {ended.name}"
        yield in_kubernetes(Code.NO_RESULT, path, ended.message or "it has not ended", remedy)
        return
    if ended.phase != "Succeeded" and not any(each.level is Level.ERROR for each in told):
        remedy = f"meks logs {ended.name}"
        text = ended.message or "it failed"
        yield in_kubernetes(Code.CHECK_ENDED_BADLY, path, text, remedy)
    yield from _numbers(ended, summary, mark, path)


def _told(summary: Mapping[str, Json], path: Path) -> Iterator[Finding]:
    """Yield what the program itself has found."""
    for text in _told_by(summary):
        found = _FINDING.fullmatch(str(text))
        if found is None:
            continue
        level, subject, what, remedy = found.groups()
        code = Code.BELOW_MARK if subject in _MARKED else Code.CHECK_ENDED_BADLY
        yield in_kubernetes(code, path, f"{subject}: {what}", remedy, Level(level))


def _numbers(
    ended: Ended, summary: Mapping[str, Json], mark: float | None, path: Path
) -> Iterator[Finding]:
    """Compare what was measured with the mark, whatever the program made of it."""
    if broken := _BROKEN.search(ended.log):
        remedy = "give the node back, and look at its Xid errors: dmesg"
        text = f"nvidia-smi prints {broken[0]!r}"
        yield in_kubernetes(Code.CHECK_ENDED_BADLY, path, text, remedy)
    if summary:
        yield from _throughput(summary, mark, path)
        return
    steps = steps_of(ended.log)
    if len(steps) > 1 and not steps[-1].loss < steps[0].loss:
        text = f"the loss went from {steps[0].loss:g} to {steps[-1].loss:g} in twenty steps"
        remedy = "do not train on these nodes: look at nvidia-smi and its ECC errors"
        yield in_kubernetes(Code.BELOW_MARK, path, text, remedy)
    elif ended.phase == "Succeeded" and not steps and not _DRIVER.search(ended.log):
        text = "it succeeded, and its log holds no result"
        yield in_kubernetes(Code.NO_RESULT, path, text, f"meks logs {ended.name}")


def _throughput(summary: Mapping[str, Json], mark: float | None, path: Path) -> Iterator[Finding]:
    rates = [
        value
        for name in ("best_busbw_gb_s", "write_mb_s", "read_mb_s")
        if isinstance(value := summary.get(name), int | float)
    ]
    if not rates:
        return
    unit = "GB/s" if "best_busbw_gb_s" in summary else "MB/s"
    subject = "busbw" if unit == "GB/s" else "throughput"
    if mark is None:
        text = f"{min(rates):g} {unit}, and there is no published mark for this type"
        remedy = "compare it with another pair of nodes, and set pass_busbw_gb_s"
        yield in_kubernetes(Code.BELOW_MARK, path, text, remedy, Level.WARNING)
    elif min(rates) < mark and not any(subject in str(each) for each in _told_by(summary)):
        text = f"{subject}: {min(rates):g} {unit}, the mark is {mark:g}"
        remedy = "see that nothing else runs on the nodes, then measure again"
        yield in_kubernetes(Code.BELOW_MARK, path, text, remedy)


def _told_by(summary: Mapping[str, Json]) -> list[Json]:
    found = summary.get("findings")
    return found if isinstance(found, list) else []
