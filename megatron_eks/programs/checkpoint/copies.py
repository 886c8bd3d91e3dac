"""What a run's copies in S3 are like: said in the log, and kept in a file beside the checkpoints.

`meks status` reads the lines, `meks ckpt ls` the file, which outlives the pods.
"""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from megatron_eks.programs import program
from megatron_eks.programs.checkpoint import manifests
from megatron_eks.programs.program import Finding, warning

FILE = "copies.json"
_VERSION = 1
# Of Kubernetes: what is written there is shown in the pod's status.
_LAST_WORD = Path("/dev/termination-log")

State = Literal["whole", "failing", "waiting", "missing"]


@dataclass(frozen=True)
class Copies:
    """The state at one moment; a log's newest line counts."""

    uri: str
    state: State
    text: str
    """What of the run is in S3, or why it is not, and what to do."""

    def __str__(self) -> str:
        """Return the line that `meks status` reads."""
        return f"copies to {self.uri}: {self.state}: {self.text}"

    def say(self) -> None:
        """Write the line for people."""
        program.say(str(self))

    def keep(self, directory: Path) -> None:
        """Write the file; a file system that is full or lost keeps the log's line alone."""
        fields = {"version": _VERSION, "at": round(time.time()), **asdict(self)}
        with suppress(OSError):
            manifests.replace_file(directory / FILE, f"{json.dumps(fields)}\n".encode())

    def last_word(self) -> None:
        """Let the pod's status carry it, where a container has such a file."""
        with suppress(OSError):
            if _LAST_WORD.is_file():
                _LAST_WORD.write_text(f"{self}\n")


def findings(directory: Path | None) -> Iterator[Finding]:
    """Yield what the file tells, unless the copies are whole or there are none."""
    if directory is None:
        return
    try:
        fields = json.loads((directory / FILE).read_bytes())
        uri, state, text = (str(fields[name]) for name in ("uri", "state", "text"))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return
    if state != "whole":
        found, _, remedy = text.rpartition(" - ")
        yield warning(uri, f"copies {state}: {found or text}", remedy or "meks ckpt push")
