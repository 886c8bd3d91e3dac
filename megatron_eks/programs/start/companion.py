"""A program beside a training, which is started again when it dies."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from megatron_eks.programs import program

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 300.0
# What ran for so long has not died of how it was started.
_SETTLED_SECONDS = 600.0


class Companion:
    """A program beside the training; whatever happens to it costs no training.

    Raises OSError if it cannot be started.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        **settings: Any,  # noqa: ANN401 -- those of subprocess.Popen
    ) -> None:
        self.name = name
        self._start: Callable[[], subprocess.Popen[bytes]] = lambda: subprocess.Popen(  # noqa: S603 -- this directory's own programs
            words, stdin=subprocess.DEVNULL, **settings
        )
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

    def _keep(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while not self._ending.is_set():
            begun = time.monotonic()
            how = ended(self.process.wait())
            if time.monotonic() - begun > _SETTLED_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            while not self._ending.is_set():
                program.say(
                    f"{self.name}: failing: its program {how} - training goes on, it starts again "
                    f"in {pause:.0f} s"
                )
                self._ending.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                with self._changing:
                    if self._ending.is_set():
                        return
                    try:
                        self.process = self._start()
                        break
                    except OSError as problem:
                        how = f"cannot be started ({problem.strerror})"


def ended(code: int) -> str:
    """Say how a process ended."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
