"""What a run's copies in S3 are like, as its log says it."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from megatron_eks.programs import program

# Of Kubernetes: what is written there is shown in the pod's status.
_LAST_WORD = Path("/dev/termination-log")


@dataclass(frozen=True)
class Copies:
    """The state at one moment; a log's newest line counts."""

    uri: str
    state: Literal["whole", "failing", "waiting", "missing"]
    text: str
    """What of the run is in S3, or why it is not, and what to do."""

    def __str__(self) -> str:
        """Return the line that `meks status` reads."""
        return f"copies to {self.uri}: {self.state}: {self.text}"

    def say(self) -> None:
        """Write the line for people."""
        program.say(str(self))

    def last_word(self) -> None:
        """Let the pod's status carry it, where a container has such a file."""
        with suppress(OSError):
            if _LAST_WORD.is_file():
                _LAST_WORD.write_text(f"{self}\n")
