"""What looks after a training's checkpoints: their copies in S3, their manifests, old ones."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import checkpoints
from megatron_eks.programs.program import Finding, Report, error, usage_error, warning
from megatron_eks.programs.run_log import Copies as State
from megatron_eks.programs.start import guard
from megatron_eks.programs.start.companion import Companion, ended
from megatron_eks.programs.start.rank_processes import Progress, cpu_seconds

_SYNC = (sys.executable, "-m", "megatron_eks.programs.checkpoint_sync")
_RETENTION = (sys.executable, "-m", "megatron_eks.programs.checkpoint.retention")

_CHECK_SECONDS = 30.0
# Hashing and sending 100 MB/s take several percent of a core, a request that is not answered none.
_STALLED_SECONDS = 120.0
_FINDING = re.compile(r"(error|warning) (.*?): (.*) - (.*)", re.DOTALL)


class Copies:
    """checkpoint_sync in a process of its own. Raises OSError if it cannot be started."""

    def __init__(self, save: Path, uri: str, keep_last: int) -> None:
        self._save, self._uri = save, uri
        self._push = [*_SYNC, "push", str(save), uri, f"--keep-last={keep_last}"]
        words = [*self._push, "--watch", f"--parent={os.getpid()}"]
        # Its JSON line is none of the training's, whose last checkpoint it has to outlive.
        stdout = sys.stderr.fileno()
        self._watcher = Companion(f"copies to {uri}", words, stdout=stdout, start_new_session=True)

    def finish(self) -> State:
        """Wait until the last checkpoint is sent: the container ends with the training.

        As long as something moves: GPUs are idle meanwhile.
        """
        # A rank that waits computes nothing, and is not to be ended for it.
        guard.leave()
        State(self._uri, "waiting", "for the last checkpoint").say()
        code, why = _wait(self._watcher.end()), ""
        # It ends with 0 where all is there; by a signal, or before it watched, it did not try.
        if code and self._has_checkpoints():
            last = subprocess.Popen(self._push, stdout=subprocess.PIPE)  # noqa: S603 -- ours
            if code := _wait(last):
                out = last.stdout.read() if last.stdout else b""
                why = _parts(out, code)[1] or f"its program {ended(code)}"
        if code == 0 or not self._has_checkpoints():
            state = State(self._uri, "whole", "all that was saved last is there")
        else:
            found = why or f"nothing has moved for {_STALLED_SECONDS:.0f} s, so it is given up"
            text = f"the last checkpoint is in {self._save} alone: {found}"
            state = State(self._uri, "missing", f"{text} - meks ckpt push JOB sends it")
            state.last_word()
        state.say()
        return state

    def _has_checkpoints(self) -> bool:
        with suppress(OSError):
            return bool(checkpoints.iterations(self._save))
        return False


class Retention:
    """The retention in a process of its own. Raises OSError if it cannot be started."""

    def __init__(self, save: Path, keep_last: int, ckpt_format: str) -> None:
        words = f"--directory={save}", f"--keep-last={keep_last}", f"--format={ckpt_format}"
        self._words = [*_RETENTION, *words]
        self._beside = Companion(f"retention in {save}", [*self._words, f"--parent={os.getpid()}"])

    def finish(self) -> None:
        """Look after the last checkpoint, which is read once for its manifest."""
        guard.leave()
        self._beside.end().wait()
        with suppress(OSError):
            subprocess.run(self._words, check=False)  # noqa: S603 -- ours


@dataclass
class Beside:
    """What looks after a run's checkpoints."""

    retention: Retention | None = None
    copies: Copies | None = None

    def finish(self) -> dict[str, object]:
        """Look after the last checkpoint; return what became of its copy, where it has one."""
        if self.retention is not None:
            self.retention.finish()
        told = self.copies.finish() if self.copies is not None else None
        return {"copies": {"uri": told.uri, "state": told.state, "text": told.text}} if told else {}


def start(save: Path, uri: str | None, keep_last: int, ckpt_format: str, report: Report) -> Beside:
    """Start what looks after checkpoints; the training does without it if it has to.

    Without a format the trainer itself writes manifests and removes old ones.
    """
    beside = Beside()
    try:
        if ckpt_format:
            beside.retention = Retention(save, keep_last, ckpt_format)
        if uri is not None:
            beside.copies = Copies(save, uri, keep_last)
    except OSError as problem:
        report.warning(save, str(problem), "copy the checkpoints with checkpoint_sync")
    return beside


def _wait(process: "subprocess.Popen[bytes]") -> int | None:
    """Wait for a program as long as it does something; None if it had to be given up."""
    progress = Progress(_STALLED_SECONDS)
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)
        used = cpu_seconds(process.pid)
        if used is not None and progress.is_blocked(process.pid, used, time.monotonic()):
            process.kill()
            return None


def check_copies(save: Path, uri: str | None) -> Iterator[Finding]:
    """Ask S3 for what copies need, before GPUs work: list, write, read and remove below the URI.

    What surely loses the copies is an error where nothing has been saved yet; a run that has begun
    goes on. S3 that does not answer may do so later.
    """
    if uri is None:
        return
    found = _ask(save, uri)
    if found is None:
        return
    begun = save.is_dir() and bool(checkpoints.iterations(save))
    if found.level == "error" and not begun:
        yield found
        return
    State(uri, "failing", f"{found.found} - {found.remedy}").say()
    yield warning(found.subject, found.found, f"training goes on; {found.remedy}")


def _ask(save: Path, uri: str) -> Finding | None:
    words = [*_SYNC, "check", str(save), uri]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_CHECK_SECONDS, check=False)  # noqa: S603 -- ours
    except subprocess.TimeoutExpired:
        remedy = "see that S3 can be reached (network policy, endpoint, proxy)"
        return warning(uri, f"no answer in {_CHECK_SECONDS:.0f} s", remedy)
    subject, found, remedy = _parts(done.stdout, done.returncode)
    if done.returncode in {0, program.EXIT_NOT_REACHABLE}:
        return warning(subject, found, remedy) if found else None
    kind = usage_error if done.returncode == program.EXIT_USAGE else error
    return kind(subject or uri, found or f"its check {ended(done.returncode)}", remedy)


def _parts(out: bytes, code: int) -> tuple[str, str, str]:
    """Return the parts of the last finding of a program's JSON line."""
    try:
        texts = json.loads(out.splitlines()[-1])["findings"]
    except (ValueError, IndexError, KeyError, TypeError):
        texts = []
    found = _FINDING.fullmatch(str(texts[-1])) if texts else None
    return (found[2], found[3], found[4]) if found else ("", "", f"exit code {code}")
