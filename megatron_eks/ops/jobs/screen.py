"""A part of a terminal that is written again in its place, in one write and without a flicker."""

import unicodedata
from collections.abc import Callable, Sequence
from os import terminal_size
from typing import TextIO

from megatron_eks.programs.printable import own

# Terminals that know it show what is between as one change; the others ignore it.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_CLEAR_SCREEN, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[2J\x1b[H", "\x1b[K", "\x1b[J"
_WIDE = frozenset("WF")


class Screen:
    """The lines above the cursor that belong to a command."""

    def __init__(self, stream: TextIO, size: Callable[[], terminal_size]) -> None:
        # `cut` leaves nothing in a line that moves the cursor: only this class does.
        self._stream, self._size = own(stream), size
        self._last: terminal_size | None = None
        self._drawn = 0

    @property
    def rows(self) -> int:
        """How many lines fit: the cursor stays on the one below them."""
        return max(1, self._size().lines - 1)

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines in the place of those that were shown before."""
        size = self._size()
        shown = [cut(line, max(1, size.columns - 1)) for line in lines[: max(1, size.lines - 1)]]
        if self._last not in {None, size}:
            # A terminal that changed its size has broken the lines anew: nobody knows where.
            back = _CLEAR_SCREEN
        else:
            back = f"\x1b[{self._drawn}A" if self._drawn else ""
        text = "".join(f"{line}{_CLEAR_LINE}\n" for line in shown)
        self._stream.write(f"{_BEGIN}{back}\r{text}{_CLEAR_BELOW}{_END}")
        self._stream.flush()
        self._last, self._drawn = size, len(shown)


def cut(text: str, columns: int) -> str:
    """Return as much of a line as fits, without signs that would move the cursor."""
    width, kept = 0, []
    for char in text:
        if not char.isprintable():
            continue
        if unicodedata.combining(char):
            width_of = 0
        else:
            width_of = 2 if unicodedata.east_asian_width(char) in _WIDE else 1
        if width + width_of > columns:
            break
        width += width_of
        kept.append(char)
    return "".join(kept)
