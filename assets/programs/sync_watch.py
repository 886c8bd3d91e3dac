"""Sends every new checkpoint while a training runs, and never gets into its way."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import program
import sync_commands
import sync_prune
from findings import warning
from sync_commands import Sync

_LOOK_SECONDS = 1.0


def watch(sync: Sync, keep_last: int | None, interval: float, parent: int | None) -> None:
    """Send new whole checkpoints until SIGTERM or until the parent has ended, then once more."""
    watcher = _Watcher(sync, keep_last)
    try:
        while parent is None or _is_alive(parent):
            watcher.look()
            deadline = time.monotonic() + interval
            while time.monotonic() < deadline and (parent is None or _is_alive(parent)):
                time.sleep(min(_LOOK_SECONDS, interval))
    except KeyboardInterrupt:
        program.say("asked to end; one last look")
    # The training saves when it is asked to end, so the last checkpoint is the one that matters.
    watcher.look()
    sync.report.facts.update(pushes=watcher.pushes, troubles=watcher.troubles)
    # An exit code other than 0 would make a failed pod of a good training.
    sync.report.findings = [replace(each, level="warning") for each in sync.report.findings]


class _Watcher:
    def __init__(self, sync: Sync, keep_last: int | None) -> None:
        self.sync = sync
        self.keep_last = keep_last
        self.pushes = 0
        self.troubles = 0
        self._done: set[str] = set()
        # Stays until a prune has come to its end: SIGTERM may end one in the middle.
        self._to_prune = False
        self._said: set[str] = set()

    def look(self) -> None:
        """Send what is new; a trouble is said once and tried again at the next look."""
        try:
            local = self.sync.local()
        except OSError as problem:
            self._trouble(str(problem))
            return
        fresh = [path for path in local.values() if path.name not in self._done]
        # The newest alone: if sending is slower than saving, the others are not worth the time.
        if fresh and self._try(partial(sync_commands.push_one, self.sync, fresh[-1])):
            self._done.update(path.name for path in fresh)
            self.pushes += 1
            self._to_prune = self.keep_last is not None
        if self.keep_last and self._to_prune:
            self._to_prune = not self._try(partial(sync_prune.prune, self.sync, self.keep_last))

    def _try(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except Exception as problem:  # noqa: BLE001 -- nothing here may end a training
            self._trouble(str(problem))
            return False
        return True

    def _trouble(self, found: str) -> None:
        self.troubles += 1
        if found not in self._said:
            self._said.add(found)
            program.say(f"{found} - training goes on, the next look tries again")
            remedy = "see the log of this program"
            self.sync.report.findings.append(warning(self.sync.store.uri, found, remedy))


def _is_alive(process: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for yet does not."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    # After the name, which is in parentheses and may hold anything.
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
