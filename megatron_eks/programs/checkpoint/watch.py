"""Sends every new checkpoint while a training runs, and never gets into its way."""

import math
import time
from dataclasses import replace

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import commands, prune
from megatron_eks.programs.checkpoint.commands import Sync
from megatron_eks.programs.program import StopError
from megatron_eks.programs.run_log import Copies
from megatron_eks.programs.start.rank_processes import is_alive

_LOOK_SECONDS = 1.0
# `meks status` reads the end of a log: a trouble has to stand there for as long as it lasts.
_TELL_SECONDS = 300.0
_REMEDY = "see the log of this program"


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
            self._push()
        except Exception as problem:  # noqa: BLE001 -- nothing here may end a training
            self._fails(problem)
        try:
            if self.keep_last and self._to_prune:
                prune.prune(self.sync, self.keep_last)
            self._to_prune = False
        except Exception as problem:  # noqa: BLE001 -- as above
            self._trouble(problem)

    def _push(self) -> None:
        fresh = [path for path in self.sync.local().values() if path.name not in self._done]
        if not fresh:
            return
        # The newest alone: if sending is slower than saving, the others are not worth the time.
        commands.push_one(self.sync, fresh[-1])
        self._done.update(path.name for path in fresh)
        self.pushes += 1
        self._to_prune = True
        self.missing = None
        self._told = -math.inf
        Copies(self.sync.store.uri, "whole", f"up to {fresh[-1].name}").say()

    def _fails(self, problem: Exception) -> None:
        """Take why the newest checkpoint was not sent; say it as long as it is so."""
        is_new, uri = self._trouble(problem), self.sync.store.uri
        other = StopError(program.EXIT_FAILED, uri, str(problem), _REMEDY)
        self.missing = problem if isinstance(problem, StopError) else other
        if is_new or time.monotonic() - self._told >= _TELL_SECONDS:
            self._told = time.monotonic()
            Copies(uri, "failing", str(self.missing)).say()

    def _trouble(self, problem: Exception) -> bool:
        """Say a trouble once; tell whether it is new."""
        self.troubles += 1
        found = str(problem)
        if found in self._said:
            return False
        self._said.add(found)
        program.say(f"{found} - training goes on, the next look tries again")
        self.sync.report.warning(self.sync.store.uri, found, _REMEDY)
        return True
