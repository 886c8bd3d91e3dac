r"""Text that is safe to show: colours pass, what else would act on a terminal is written out.

Names, logs and messages come from anywhere. A terminal that gets them raw lets them write the
clipboard (OSC 52), clear the screen, or show another name than the one that is there.
"""

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

# Select Graphic Rendition, without the parameter 8, which hides text (ECMA-48, 8.3.117); behind
# 38, 48 and 58 an 8 is a colour's number.
_PARAMETER = r"(?>[345]8;(?:5;\d{1,3}|2(?:;\d{1,3}){3})|(?!0*8(?!\d))\d{0,3})"
_COLOUR = rf"\x1b\[{_PARAMETER}(?:;{_PARAMETER}){{0,15}}m"
_COLOURS, _RESET = re.compile(_COLOUR), "\x1b[0m"
# Unicode 16, DerivedCoreProperties.txt, Default_Ignorable_Code_Point: nobody sees them. Beside
# them: separators that break lines, bidirectional controls among them, halves of a code point.
_UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
# These are letters' own in many scripts and in emoji: one of each behind a sign that is not ASCII.
_JOINERS, _SELECTORS = "\u200c\u200d", "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_SUSPECT = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_UNSEEN}{_JOINERS}{_SELECTORS}]"
_SIGN = rf"[^\x00-\x7f{_UNSEEN}{_JOINERS}{_SELECTORS}]"
_IN_A_WORD = (
    rf"(?<={_SIGN})[{_SELECTORS}]"
    rf"|(?:(?<={_SIGN})|(?<={_SIGN}[{_SELECTORS}]))[{_JOINERS}](?={_SIGN})"
)
# The look at what comes first makes it four times as fast in logs.
_ACTS = re.compile(rf"(?={_SUSPECT})(?!{_COLOUR}|\r\n|{_IN_A_WORD}).", re.DOTALL)


def printable(text: str) -> str:
    """Return a text with only colours, tabs and line ends left of what is no sign."""
    return _ACTS.sub(lambda found: _written(found[0]), text)


def plain(text: str) -> str:
    """Return one line without colours: a name, or a message that quotes one."""
    text = printable(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _written(char) for char in text)


def log_line(raw: bytes) -> str:
    """Return a line of a log with its colours ended; of a bar that is redrawn the last state."""
    text = printable(raw.decode(errors="backslashreplace").rstrip("\r\n").rpartition("\r")[2])
    colours = _COLOURS.findall(text) if "\x1b" in text else ()
    return f"{text}{_RESET}" if colours and colours[-1] not in {_RESET, "\x1b[m"} else text


def own(stream: TextIO) -> TextIO:
    """Return the stream below a guard, for the few that move the cursor themselves."""
    return stream.below if isinstance(stream, _Guard) else stream


def guard(stream: TextIO) -> TextIO:
    """Return a stream that writes what is printable."""
    return stream if isinstance(stream, _Guard) else cast("TextIO", _Guard(stream))


@contextmanager
def guarded() -> Iterator[None]:
    """Guard what this process writes; also a decorator.

    A stream that was closed stays one that cannot be used: the next file that is opened would get
    its number, and the output with it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # For reading, so that writing fails as it does on a full disk.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDONLY), mode))
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or pipe that cannot show a sign of somebody's file must not stop a program.
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = guard(sys.stdout), cast("TextIO", _Told(own(sys.stderr)))
    try:
        yield
    except Exception:
        # Python prints it at the end of the process, names and all.
        before = before[0], sys.stderr
        raise
    finally:
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


class _Guard:
    """A text stream that writes what is printable; all else is as in the one below."""

    def __init__(self, below: TextIO) -> None:
        self.below = below

    def write(self, text: str) -> int:
        self.below.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self.write("".join(lines))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- whatever the stream has
        return getattr(self.below, name)


class _Told(_Guard):
    """The same for messages: where nobody can be told, the work goes on."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError:
            drop(self.below)
            return len(text)

    def flush(self) -> None:
        try:
            self.below.flush()
        except OSError:
            drop(self.below)


def drop(stream: TextIO) -> None:
    """Let what is still buffered go nowhere: at exit Python would try to write it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _written(char: str) -> str:
    # JSON has no \x, and leaves only this one of them unwritten.
    return r"\u007f" if char == "\x7f" else ascii(char)[1:-1]
