"""Says on stderr how far a program is: a line that changes on a terminal, plain ones in a log."""

import sys
import time
from dataclasses import dataclass, field

from megatron_eks.programs.printable import own, plain

_TERMINAL_SECONDS = 0.5
_LOG_SECONDS = 15.0


@dataclass
class Progress:
    """How many of the stored bytes are done; rates are those of this process alone."""

    total: int
    done: int
    """Bytes that an earlier run did, at first."""
    documents: int = 0
    tokens: int = 0
    _begin: float = field(default_factory=time.monotonic)
    _next: float = 0.0
    _before: int = 0

    def __post_init__(self) -> None:
        """Remember where this process began."""
        self._before = self.done
        self._terminal = sys.stderr.isatty()
        # Only on a terminal it moves the cursor, with figures of its own on the line.
        self._stream = own(sys.stderr) if self._terminal else sys.stderr
        self._next = self._begin + (_TERMINAL_SECONDS if self._terminal else _LOG_SECONDS)

    def add(self, done: int, documents: int, tokens: int) -> None:
        """Count what was done, and say so once in a while."""
        self.done = done
        self.documents += documents
        self.tokens += tokens
        now = time.monotonic()
        if now >= self._next:
            self._next = now + (_TERMINAL_SECONDS if self._terminal else _LOG_SECONDS)
            end = "\x1b[K\r" if self._terminal else "\n"
            self._write(f"{self.line(now)}{end}")

    def close(self) -> None:
        """Leave the terminal with the last figures on a line of their own."""
        self._line(self.line(time.monotonic()))

    def line(self, now: float) -> str:
        """Return the line for people."""
        seconds = max(now - self._begin, 1e-3)
        rate = (self.done - self._before) / seconds
        left = (self.total - self.done) / rate if rate else 0
        return (
            f"{self.done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB, {rate / 1e6:,.1f} MB/s, "
            f"{self.documents / seconds:,.0f} documents/s, {self.tokens / seconds:,.0f} tokens/s, "
            f"{clock(left)} left"
        )

    def _line(self, text: str) -> None:
        self._write(f"{text}\x1b[K\n" if self._terminal else f"{text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class TransferProgress(Progress):
    """The same of files on their way, where nothing is known but bytes."""

    def say(self, message: str) -> None:
        """Write a line of its own in the place of the one that changes."""
        self._line(plain(message))

    def line(self, now: float) -> str:
        """Return the line for people."""
        rate = (self.done - self._before) / max(now - self._begin, 1e-3)
        left = clock((self.total - self.done) / rate) if rate else "?"
        share = f"{self.done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB"
        return f"{share}, {rate / 1e6:,.1f} MB/s, {left} left"


def clock(seconds: float) -> str:
    """Write a time span."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
