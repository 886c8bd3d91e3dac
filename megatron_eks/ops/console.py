"""How a command talks with people: progress, questions, and the time."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TextIO

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.messages import messages
from megatron_eks.ops.failure import USAGE, Failure
from megatron_eks.programs.printable import printable

# Much is done at once, or within seconds.
_FIRST_PAUSE = 0.5
_LONGER = 1.5


class SystemClock:
    """The machine's clock; tests have others."""

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return datetime.now(tz=UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True)
class Console:
    """The streams of a command; data go to `stdout`, progress and questions to `stderr`."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    clock: SystemClock
    yes: bool = False
    """Every question has been answered with yes, by a flag."""

    def say(self, line: str = "") -> None:
        """Tell how it goes."""
        self._tell(f"{line}\n")

    def report(self, findings: Iterable[Finding]) -> None:
        """Tell what was found."""
        self._tell(messages(findings, self.stderr))

    def write(self, text: str) -> None:
        """Write data."""
        self.stdout.write(printable(text))
        self.stdout.flush()

    def confirm(self, question: str, flag: str = "--yes") -> bool:
        """Ask a question that `flag` would have answered; without a terminal nobody can."""
        if self.yes:
            return True
        answer = self._line(f"{question} [y/N] ", flag)
        return answer.strip().lower() in {"y", "yes"}

    def confirm_name(self, question: str, name: str, flag: str) -> bool:
        """Ask for a name to be typed: what follows cannot be undone, so `--yes` is no answer."""
        return self._line(f"{question}\nType {name} to go on: ", flag).strip() == name

    def ask(self, question: str, default: str, flag: str) -> str:
        """Ask for a value; return on its own the default is taken."""
        shown = f" [{default}]" if default else ""
        line = self._line(f"{question}{shown}: ", flag)
        if not line:  # Ctrl-D: whoever asks until an answer is right would never end
            raise Failure(Code.NEEDS_ANSWER, f"no {question}", f"add {flag}", exit_code=USAGE)
        return line.strip() or default

    @property
    def answers(self) -> bool:
        """Whether a question gets an answer: somebody's, or the one that `--yes` gives."""
        return self.yes or self.stdin.isatty()

    def _line(self, prompt: str, flag: str) -> str:
        if not self.stdin.isatty():
            found = f"nobody is there to answer: {prompt.splitlines()[0].strip()}"
            raise Failure(Code.NEEDS_ANSWER, found, f"add {flag}", exit_code=USAGE)
        self._tell(prompt)
        return self.stdin.readline()

    def _tell(self, text: str) -> None:
        self.stderr.write(printable(text))
        self.stderr.flush()

    def wait(self, seconds: float, step: float, done: Callable[[], bool]) -> bool:
        """Call `done`, soon at first and then every `step` seconds; say whether it became true."""
        ends = self.clock.now().timestamp() + seconds
        pause = min(_FIRST_PAUSE, step)
        while not done():
            if self.clock.now().timestamp() >= ends:
                return False
            self.clock.sleep(pause)
            pause = min(_LONGER * pause, step)
        return True


def duration(seconds: float) -> str:
    """Write a time span as people say it: `45 s`, `12 min`, `3 h 05 min`, `2 d 4 h`."""
    minutes = int(seconds) // 60
    if seconds < 120:  # noqa: PLR2004 -- below two minutes, minutes are too coarse
        return f"{int(seconds)} s"
    if minutes < 120:  # noqa: PLR2004 -- and above two hours too fine
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60:02} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"  # noqa: PLR2004 -- two days
