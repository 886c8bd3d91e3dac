"""Says on stderr how far a program is, in a line every some seconds."""

import time
from datetime import timedelta

from megatron_eks.programs import program

_SECONDS = 10.0


class Progress:
    """How many of the stored bytes are done; rates are those of this process alone."""

    def __init__(self, total: int, done: int) -> None:
        """Take the bytes that an earlier run did as `done`."""
        self.total, self.done, self._before = total, done, done
        self._documents = self._tokens = 0
        self._begin = time.monotonic()
        self._next = self._begin + _SECONDS

    def add(self, done: int, documents: int = 0, tokens: int = 0) -> None:
        """Count what was done, and say so once in a while."""
        self.done = done
        self._documents += documents
        self._tokens += tokens
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _SECONDS
            program.say(self.line(now))

    def close(self) -> None:
        """Say the last figures."""
        program.say(self.line(time.monotonic()))

    def line(self, now: float) -> str:
        """Return the line for people."""
        seconds = max(now - self._begin, 1e-3)
        rate = (self.done - self._before) / seconds
        said = [f"{self.done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB", f"{rate / 1e6:,.1f} MB/s"]
        if self._documents:
            said.append(f"{self._documents / seconds:,.0f} documents/s")
            said.append(f"{self._tokens / seconds:,.0f} tokens/s")
        left = timedelta(seconds=round((self.total - self.done) / rate)) if rate else "?"
        return f"{', '.join(said)}, {left} left"
