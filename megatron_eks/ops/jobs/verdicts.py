"""What the end and the log of a check on the hardware mean, held against its mark."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.ops.checks import Result, in_kubernetes
from megatron_eks.programs.run_log import steps_of

_DRIVER = re.compile(r"Driver Version:\s*(\S+)\s+CUDA(?: UMD)? Version:\s*([\d.]+)")
# What nvidia-smi writes in the place of a value that the GPU does not give any more.
_BROKEN = re.compile(
    r"\bERR!|Unable to determine the device handle|GPU is lost|No devices were found"
)
_BUS = "best_busbw_gb_s"
_NUMBERS = {
    "allreduce_bench": (_BUS, "best_bytes", "pass_busbw_gb_s", "ranks"),
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

    def told(self, code: Code, text: str, remedy: str, level: Level = Level.ERROR) -> Finding:
        """Return a finding about it."""
        return in_kubernetes(code, (f"Job/{self.name}",), text, remedy, level)


def verdict(ended: Ended) -> Result:
    """Judge a check."""
    summary = _last_summary(ended.log)
    findings = tuple(dict.fromkeys(_judge(ended, summary)))
    return Result(ended.name, findings, measured=_measured(ended.log, summary))


def _measured(log: str, summary: Mapping[str, Json]) -> Mapping[str, Json]:
    if found := _DRIVER.search(log):
        return {"driver": found[1], "cuda": found[2]}
    if summary:
        names = _NUMBERS.get(str(summary["program"]), ())
        return {name: summary[name] for name in names if name in summary}
    steps = steps_of(log)
    if not steps:
        return {}
    first, last = steps[0], steps[-1]
    return {"steps": last.step, "first_loss": first.loss, "last_loss": last.loss}


def _last_summary(log: str) -> Mapping[str, Json]:
    """Return the JSON line with which a program of ours ends, or nothing."""
    for line in reversed(log.splitlines()):
        with suppress(ValueError):
            if line.startswith("{") and '"program"' in line:
                found: dict[str, Json] = json.loads(line)
                return found
    return {}


def _judge(ended: Ended, summary: Mapping[str, Json]) -> Iterator[Finding]:
    logs = f"meks logs {ended.name}"
    told = [*_told(ended, summary)]
    yield from told
    if not ended.phase:
        remedy = f"meks status {ended.name}; {logs}"
        yield ended.told(Code.NO_RESULT, ended.message or "it has not ended", remedy)
        return
    if ended.phase != "Succeeded" and not any(each.level is Level.ERROR for each in told):
        yield ended.told(Code.CHECK_ENDED_BADLY, ended.message or "it failed", logs)
    if broken := _BROKEN.search(ended.log):
        remedy = "give the node back, and look at its Xid errors: dmesg"
        yield ended.told(Code.CHECK_ENDED_BADLY, f"nvidia-smi prints {broken[0]!r}", remedy)
    steps = steps_of(ended.log)
    if summary:
        # The program holds what it measured against the mark that it was given.
        if _BUS in summary and summary.get("pass_busbw_gb_s") is None:
            text = f"{summary[_BUS]} GB/s, and there is no published mark for this type"
            remedy = "compare it with another pair of nodes, and set pass_busbw_gb_s"
            yield ended.told(Code.BELOW_MARK, text, remedy, Level.WARNING)
    elif len(steps) > 1 and not steps[-1].loss < steps[0].loss:
        text = f"the loss went from {steps[0].loss:g} to {steps[-1].loss:g} in twenty steps"
        remedy = "do not train on these nodes: look at nvidia-smi and its ECC errors"
        yield ended.told(Code.BELOW_MARK, text, remedy)
    elif ended.phase == "Succeeded" and not steps and not _DRIVER.search(ended.log):
        yield ended.told(Code.NO_RESULT, "it succeeded, and its log holds no result", logs)


def _told(ended: Ended, summary: Mapping[str, Json]) -> Iterator[Finding]:
    said = summary.get("findings")
    for found in map(_FINDING.fullmatch, map(str, said if isinstance(said, list) else ())):
        if found:
            level, subject, what, remedy = found.groups()
            code = Code.BELOW_MARK if subject in _MARKED else Code.CHECK_ENDED_BADLY
            yield ended.told(code, f"{subject}: {what}", remedy, Level(level))
