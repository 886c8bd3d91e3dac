"""A terminal with a process on its other side, for what commands do where somebody types."""

import os
import pty
import re
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any


class Screen:
    """What the process shows, and keys for it; `begin` starts it with streams of its own."""

    def __init__(self, begin: Callable[..., "subprocess.Popen[Any]"]) -> None:
        self._mine, theirs = pty.openpty()
        self.process = begin(stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.text = ""
        """All that it has shown."""
        self._seen = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # At the end of the last process on the other side reading is an error.
        try:
            while data := os.read(self._mine, 4096):
                self.text += data.decode(errors="replace")
        except OSError:
            return

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._mine, keys.encode())

    def shows(self, pattern: str, seconds: float = 60) -> str:
        """Wait for something new to appear; return all that is new up to there."""
        ends = time.monotonic() + seconds
        while not (found := re.compile(pattern).search(self.text, self._seen)):
            assert time.monotonic() < ends, self.text
            time.sleep(0.05)
        new, self._seen = self.text[self._seen : found.end()], found.end()
        return new

    def ends(self, seconds: float = 60) -> int:
        """Return the exit code, once all that it has shown is read."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def close(self) -> None:
        """Hang up."""
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        os.close(self._mine)
