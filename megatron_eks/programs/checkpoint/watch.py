"""Sends every new checkpoint while a training runs, and never gets into its way."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import commands, copies, prune
from megatron_eks.programs.checkpoint.commands import Sync
from megatron_eks.programs.program import StopError
from megatron_eks.programs.start.rank_processes import is_alive

_LOOK_SECONDS = 1.0
# `meks status` reads the end of a log: a trouble has to stand there for as long as it lasts.
_TELL_SECONDS = 300.0


def watch(sync: Sync, keep_last: int | None, interval: float, parent: int | None) -> None:
    """Send new whole checkpoints until SIGTERM or until the parent has ended, then once more.

    Raises StopError if the newest one is not there then.
    """
    watcher = _Watcher(sync, keep_last)
    try:
        while parent is None or is_alive(parent):
            watcher.look()
            deadline = time.monotonic() + interval
            while time.monotonic() < deadline and (parent is None or is_alive(parent)):
                time.sleep(min(_LOOK_SECONDS, interval))
    except KeyboardInterrupt:
        program.say("asked to end; one last look")
    # The training saves when it is asked to end, so the last checkpoint is the one that matters.
    watcher.look()
    sync.report.facts.update(pushes=watcher.pushes, troubles=watcher.troubles)
    sync.report.findings = [replace(each, level="warning") for each in sync.report.findings]
    if watcher.missing:
        raise watcher.missing


class _Watcher:
    def __init__(self, sync: Sync, keep_last: int | None) -> None:
        self.sync = sync
        self.keep_last = keep_last
        self.pushes = 0
        self.troubles = 0
        self.missing: StopError | None = None
        """Why the newest checkpoint is not there."""
        self._done: set[str] = set()
        # Stays until a prune has come to its end: SIGTERM may end one in the middle.
        self._to_prune = False
        self._said: set[str] = set()
        self._told = -math.inf

    def look(self) -> None:
        """Send what is new; a trouble is said once and tried again at the next look."""
        try:
            local = self.sync.local()
        except OSError as problem:
            self._fails(problem)
            return
        fresh = [path for path in local.values() if path.name not in self._done]
        # The newest alone: if sending is slower than saving, the others are not worth the time.
        if fresh and self._try(partial(commands.push_one, self.sync, fresh[-1]), self._fails):
            self._done.update(path.name for path in fresh)
            self.pushes += 1
            self._to_prune = self.keep_last is not None
            self.missing = None
            self._told = -math.inf
            self._tell("whole", f"up to {fresh[-1].name}")
        if self.keep_last and self._to_prune:
            tidy = partial(prune.prune, self.sync, self.keep_last)
            self._to_prune = not self._try(tidy, self._trouble)

    def _try(self, action: Callable[[], None], fails: Callable[[Exception], object]) -> bool:
        try:
            action()
        except Exception as problem:  # noqa: BLE001 -- nothing here may end a training
            fails(problem)
            return False
        return True

    def _fails(self, problem: Exception) -> None:
        """Take why the newest checkpoint was not sent; say it as long as it is so."""
        is_new = self._trouble(problem)
        uri = self.sync.store.uri
        if isinstance(problem, StopError):
            self.missing = problem
        else:
            remedy = "see the log of this program"
            self.missing = StopError(program.EXIT_FAILED, uri, str(problem), remedy)
        if is_new or time.monotonic() - self._told >= _TELL_SECONDS:
            self._told = time.monotonic()
            self._tell("failing", str(self.missing))

    def _tell(self, state: copies.State, text: str) -> None:
        told = copies.Copies(self.sync.store.uri, state, text)
        told.say()
        told.keep(self.sync.directory)

    def _trouble(self, problem: Exception) -> bool:
        """Say a trouble once; tell whether it is new."""
        self.troubles += 1
        found = str(problem)
        if found in self._said:
            return False
        self._said.add(found)
        program.say(f"{found} - training goes on, the next look tries again")
        remedy = "see the log of this program"
        self.sync.report.warning(self.sync.store.uri, found, remedy)
        return True
