"""Regular expressions of users over lines of jobs: neither may hold a command up for ever."""

import re
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from megatron_eks.config.codes import Code
from megatron_eks.ops.failure import USAGE, Failure

LONGEST = 8192
"""Characters of a line that are looked at: the time of some patterns grows with their square."""

SECONDS = 1.0
"""How long a pattern may take for one line."""


class BadPatternError(ValueError):
    """A pattern that is none; the message shows where."""


class _TooSlowError(Exception):
    pass


def compiled(text: str) -> re.Pattern[str]:
    """Read a pattern; raise BadPatternError with a mark below what is wrong."""
    try:
        with warnings.catch_warnings():
            # What a later Python will read differently, this one reads as it always did.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(text)
    except re.error as error:
        place = error.pos or 0
        shown = "".join(char if char.isprintable() else "?" for char in text)
        found = f"{error.msg}, at character {place + 1}\n  {shown}\n  {' ' * place}^"
        raise BadPatternError(found) from error
    except (OverflowError, RecursionError) as error:
        raise BadPatternError(f"{text[:40]!r} is too large: {error}") from error


def matches(pattern: re.Pattern[str] | None, line: str, seconds: float | None = None) -> bool:
    """Say whether a line is wanted; raise Failure where a pattern takes too long to say so."""
    if pattern is None:
        return True
    shown = line[:LONGEST]
    try:
        with _limited(seconds or SECONDS):
            return pattern.search(shown) is not None
    except _TooSlowError:
        found = f"--grep {pattern.pattern!r} is not done with a line of {len(shown)} characters"
        found += f" after {seconds or SECONDS:g} s"
        remedy = "repeat nothing that is repeated already, such as (a+)+; or search in a file"
        raise Failure(Code.PATTERN_TOO_SLOW, found, remedy, exit_code=USAGE) from None


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise _TooSlowError inside after so many seconds; `re` looks for signals while it works.

    Signals come to the main thread alone, which is where commands print.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _stop(_number: int, _frame: object) -> None:
    raise _TooSlowError
