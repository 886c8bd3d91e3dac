"""What the log of a run tells: its steps, its checkpoints, and where it went on from.

Megatron-LM and Megatron-Bridge print a step on their last rank and a checkpoint on the first, our
own trainers print both on the first.
"""

import math
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from megatron_eks.programs import program

# The kubelet's time of a line, where it was asked for.
_STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\S{8,24}Z) ")
# A line of Megatron-LM's `training_log`: name and value between bars. It leaves `lm loss` out where
# that is no number.
_MEGATRON = re.compile(r"iteration\s+(\d+)/\s*(\d+) \|")
_FIELD = re.compile(r"\|\s*([A-Za-z][^:|]*?):\s*([-+0-9.eE]+|nan|inf)\s*(?=\||$)")
# Our trainers', and what docs/own-programs.md asks of other programs.
_OURS = re.compile(r"step (\d+)/(\d+) ?[,|] ?loss(?: ?[:=] ?| )([-+0-9.eE]+|nan|inf)")
_GRADIENT = re.compile(r"\| ?grad norm:? ([-+0-9.eE]+|nan|inf) ")
_MEASURE = re.compile(r"\| (?:MFU )?([0-9][0-9,.e+-]*) (tokens/s|TFLOP/s/GPU|%|s)(?= |$)")
_SAVING = re.compile(r"saving checkpoint at iteration\s+(\d+)")
_SAVED = re.compile(
    r"successfully saved checkpoint from iteration\s+(\d+)"
    r"|saved checkpoint of step (\d+)(?:.* in ([0-9.]+) s$)?"
)
_LOADED = re.compile(
    r"successfully loaded checkpoint from .* at iteration (\d+)|goes on from step (\d+)"
)
_COPIES = re.compile(r"copies to (s3://\S+): (whole|failing|waiting|missing): (.*)")
# Of Kubernetes: what is written there is shown in the pod's status.
_LAST_WORD = Path("/dev/termination-log")
_PERCENT, _MILLI = 100, 1000

TELLING = (
    r"iteration +\d+/|step \d+/\d+|(saved|loaded) checkpoint|goes on from step|copies to s3://"
)
"""Finds every line that something is read from here, and few others."""
NEWEST = 10
"""Lines of steps that tell how a run goes now: single ones differ by what else went on."""
FIGURES = ("seconds", "tokens_per_second", "mfu", "grad_norm")
"""What a step may tell beside its loss, and others keep of it."""
LEAST_MFU = 0.001
"""No GPU is so slow: ranks run on CPUs, as in a rehearsal, and the plan is not theirs."""
# A save or a validation between two lines takes less.
_PATIENCE, _LEAST_SILENCE_SECONDS = 10, 120.0


def longest_silence(usual_seconds: float) -> float:
    """Return after how many seconds no line of a step comes any more, from the usual time."""
    return max(_LEAST_SILENCE_SECONDS, _PATIENCE * usual_seconds)


@dataclass(frozen=True)
class Step:
    """A step that was logged; what its line does not tell is None."""

    step: int
    steps: int
    """0 where nobody tells."""
    loss: float
    """NaN where the line has none: Megatron leaves out what is no number."""
    seconds: float | None = None
    tokens_per_second: float | None = None
    """Of all GPUs together."""
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    samples: int | None = None
    """Of the step, on all GPUs."""
    at: datetime | None = None
    """When it was printed, by the clock of its node."""
    grad_norm: float | None = None

    def __str__(self) -> str:
        """Return it in a few words."""
        return f"{self.step}/{self.steps}, loss {self.loss:.4g}"

    @property
    def finite_loss(self) -> float | None:
        """The loss, as JSON can say it."""
        return self.loss if math.isfinite(self.loss) else None


@dataclass(frozen=True)
class Mark:
    """A checkpoint that was written, or read at the start."""

    step: int
    at: datetime | None
    seconds: float | None = None
    """How long it took to write, as far as its line tells."""


@dataclass(frozen=True)
class Copies:
    """What a run says last of its checkpoints' copies in S3; a log's newest line counts."""

    uri: str
    state: str
    """`whole`, `failing`, `waiting` for the last one, or `missing` at the end."""
    text: str
    """Up to which checkpoint, or why not, and what to do."""
    at: datetime | None = None

    def __str__(self) -> str:
        """Return the line of it."""
        return f"copies to {self.uri}: {self.state}: {self.text}"

    def say(self) -> None:
        """Write the line."""
        program.say(str(self))

    def last_word(self) -> None:
        """Let the pod's status carry it, where a container has such a file."""
        with suppress(OSError):
            if _LAST_WORD.is_file():
                _LAST_WORD.write_text(f"{self}\n")


@dataclass(frozen=True)
class RunLog:
    """All that was found in some lines, oldest first."""

    steps: tuple[Step, ...] = ()
    saves: tuple[Mark, ...] = ()
    loads: tuple[Mark, ...] = ()
    first_at: datetime | None = None
    """The time of the first line."""
    copies: Copies | None = None
    saving: tuple[int, ...] = ()
    """Steps whose checkpoints were begun."""

    @property
    def last(self) -> Step | None:
        """The newest step."""
        return self.steps[-1] if self.steps else None


def read(lines: Iterable[str]) -> RunLog:
    """Read lines in their order."""
    steps, saves, loads, saving = [], [], [], []
    first: datetime | None = None
    copies: Copies | None = None
    for line in lines:
        at = _time(line)
        first = first or at
        if step := _step(line, at):
            steps.append(step)
        elif found := _SAVED.search(line):
            took = _float(found[3] or "")
            saves.append(Mark(int(found[1] or found[2]), at, took))
        elif found := _SAVING.search(line):
            saving.append(int(found[1]))
        elif found := _LOADED.search(line):
            loads.append(Mark(int(found[1] or found[2]), at))
        elif found := _COPIES.search(line):
            copies = Copies(found[1], found[2], found[3], at)
    return RunLog(tuple(steps), tuple(saves), tuple(loads), first, copies, tuple(saving))


def merged(logs: Iterable[RunLog]) -> RunLog:
    """Return what several ranks print as one: steps of the one that has most, marks of all."""
    found = list(logs)
    saves = sorted((mark for each in found for mark in each.saves), key=lambda mark: mark.step)
    return RunLog(
        steps=max((each.steps for each in found), key=len, default=()),
        saves=tuple(saves),
        loads=tuple(mark for each in found for mark in each.loads),
        first_at=min((each.first_at for each in found if each.first_at), default=None),
        copies=next((each.copies for each in found if each.copies), None),
    )


def steps_of(text: str) -> list[Step]:
    """Return all steps that a log tells of, in its order."""
    return [*read(text.splitlines()).steps]


def _time(line: str) -> datetime | None:
    with suppress(ValueError):
        if found := _STAMP.match(line):
            return datetime.fromisoformat(found[1])
    return None


def _step(line: str, at: datetime | None) -> Step | None:
    if found := _MEGATRON.search(line):
        return _of_megatron(found, line, at)
    return _of_ours(found, line, at) if (found := _OURS.search(line)) else None


def _of_megatron(found: re.Match[str], line: str, at: datetime | None) -> Step:
    read = ((each[1].strip(), _float(each[2])) for each in _FIELD.finditer(line))
    values = {name: value for name, value in read if value is not None}
    elapsed = values.get("elapsed time per iteration (ms)")
    samples = values.get("global batch size")
    return Step(
        step=int(found[1]),
        steps=int(found[2]),
        loss=values.get("lm loss", math.nan),
        seconds=elapsed / _MILLI if elapsed else None,
        tflops_per_gpu=values.get("throughput per GPU (TFLOP/s/GPU)"),
        samples=int(samples) if samples and math.isfinite(samples) else None,
        at=at,
        grad_norm=values.get("grad norm"),
    )


def _of_ours(found: re.Match[str], line: str, at: datetime | None) -> Step | None:
    if (loss := _float(found[3])) is None:
        return None
    values = {unit: _float(text.replace(",", "")) for text, unit in _MEASURE.findall(line)}
    mfu = values.get("%")
    return Step(
        step=int(found[1]),
        steps=int(found[2]),
        loss=loss,
        seconds=values.get("s"),
        tokens_per_second=values.get("tokens/s"),
        tflops_per_gpu=values.get("TFLOP/s/GPU"),
        mfu=None if mfu is None else mfu / _PERCENT,
        at=at,
        grad_norm=_float(gradient[1]) if (gradient := _GRADIENT.search(line)) else None,
    )


def _float(text: str) -> float | None:
    with suppress(ValueError):
        return float(text)
    return None
