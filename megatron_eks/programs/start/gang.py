"""How the nodes of a job learn that one of them was lost: a file of each on shared storage.

Node 0 reads the files of all, every other node reads node 0's: whoever loses a node ends its own
ranks, and node 0's end is everybody's. That is two small reads a node and round, however many
nodes there are. Nothing is read from clocks or from a file's times, which differ between nodes:
a node lives as long as the count in its file changes.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

State = Literal["running", "finished", "failed", "ended"]

# Written over in place: no new file, no new block, and one write that readers see whole.
_RECORD_BYTES = 128


@dataclass(frozen=True)
class Record:
    """What a node says of itself."""

    start: str
    """A name of its own for each start of the node's ranks."""
    count: int
    state: State = "running"
    """`ended`: it is not known how."""


def path_of(directory: Path, node: int) -> Path:
    """Return the file of a node."""
    return directory / f"node-{node:05d}"


def read(path: Path) -> Record | None:
    """Return a node's record; None if there is none, or half of one.

    Raises OSError where the file system does not answer as it should.
    """
    try:
        found = Record(**json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return found if isinstance(found.count, int) and found.state in get_args(State) else None


class Heart:
    """The file of this node, which shows the others that it lives."""

    def __init__(self, path: Path, start: str) -> None:
        """Open it; `start` is the name of the start of the ranks."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o664)
        self._start, before = start, read(path)
        # Goes on counting after a watcher of the same start that died.
        self._count = before.count if before and before.start == start else 0

    def beat(self, state: State = "running") -> None:
        """Say that this node lives, or how it ended; raises OSError."""
        self._count += 1
        text = json.dumps(asdict(Record(self._start, self._count, state)))
        os.pwrite(self._descriptor, text.ljust(_RECORD_BYTES).encode(), 0)


class Peer:
    """Another node of the gang, as its file shows it round by round.

    A node is known from the first change of its count on: before that, its file may be one that
    an earlier start left.
    """

    def __init__(self, node: int, patience: int) -> None:
        self.node = node
        self._patience = patience
        self._last: Record | None = None
        self._known, self._still = False, 0

    def look(self, record: Record | None) -> str | None:
        """Take one round's record; return what is wrong, if anything is.

        Rounds in which this node could not write its own file do not count: call it only after
        those that could, so that a file system that hangs is nobody's end.
        """
        last = self._last
        if record is None or record == last:
            return self._wait()
        self._last, self._still = record, 0
        same = last is not None and record.start == last.start
        if not self._known:
            self._known = same and last is not None and last.state == "running"
            if not self._known:
                return None
        if not same:
            return "has started anew"
        return "has lost its ranks" if record.state == "failed" else None

    def _wait(self) -> str | None:
        """Take a round in which nothing changed."""
        self._still += 1
        if not self._known:
            # All nodes' ranks start together. Where a file is left as it was, they have met only
            # what was still there of the last start.
            late = self._last is not None and self._still >= 2 * self._patience
            return f"has not come back for {self._still} rounds" if late else None
        if self._last is not None and self._last.state != "running":
            return None
        return f"is silent for {self._still} rounds" if self._still >= self._patience else None
