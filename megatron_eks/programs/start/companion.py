"""A program beside a training, which is started again when it dies."""

import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from megatron_eks.programs import program

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 300.0


class Companion:
    """A program beside the training; whatever happens to it costs no training.

    Raises OSError if it cannot be started.
    """

    def __init__(self, name: str, words: Sequence[str], **settings: Any) -> None:  # noqa: ANN401 -- those of subprocess.Popen
        self.name, self._words, self._settings = name, words, settings
        self.process = self._start()
        self._ending = threading.Event()
        self._changing = threading.Lock()
        threading.Thread(target=self._keep, name=name, daemon=True).start()

    def end(self) -> "subprocess.Popen[bytes]":
        """Ask it to end, and start it no more."""
        with self._changing:
            self._ending.set()
            self.process.terminate()
            return self.process

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(self._words, stdin=subprocess.DEVNULL, **self._settings)  # noqa: S603 -- ours

    def _keep(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._ending.is_set():
            how = ended(self.process.wait())
            if not self._ending.is_set():
                again = f"training goes on, it starts again in {pause:.0f} s"
                program.say(f"{self.name}: failing: its program {how} - {again}")
            self._ending.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            with self._changing:
                if not self._ending.is_set():
                    # Where the system has no room for a process, the next round tries again.
                    with suppress(OSError):
                        self.process = self._start()


def ended(code: int) -> str:
    """Say how a process ended."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
