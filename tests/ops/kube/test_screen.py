"""What stays on a terminal that is redrawn in place."""

import io
import os
import re

import pytest

from megatron_eks.ops.jobs.watching import Screen, cut, fitted

_CODE = re.compile(r"\x1b\[(\??)(\d*)([A-Za-z])|([^\x1b])", re.DOTALL)


class Terminal:
    """As much of a terminal as the screen asks for: it scrolls, and breaks lines too long."""

    def __init__(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.lines = [""] * rows
        self.x = self.y = 0
        self.scrolled = 0

    def feed(self, text):
        """Do what is written."""
        for private, number, code, char in _CODE.findall(text):
            if char:
                self._put(char)
            elif not private:
                getattr(self, f"_{code}")(int(number or 0))

    def _put(self, char):
        if char == "\r":
            self.x = 0
        elif char == "\n":
            self.x = 0
            self._down()
        else:
            if self.x == self.columns:
                self.x = 0
                self._down()
            line = self.lines[self.y].ljust(self.x)
            self.lines[self.y] = line[: self.x] + char + line[self.x + 1 :]
            self.x += 1

    def _down(self):
        if self.y == self.rows - 1:
            self.lines = [*self.lines[1:], ""]
            self.scrolled += 1
        else:
            self.y += 1

    def _A(self, number):  # noqa: N802 -- the terminal's own letters
        self.y = max(0, self.y - number)

    def _K(self, _):  # noqa: N802
        self.lines[self.y] = self.lines[self.y][: self.x]

    def _J(self, number):  # noqa: N802
        if number == 2:
            self.lines = [""] * self.rows
        else:
            self._K(0)
            self.lines[self.y + 1 :] = [""] * (self.rows - self.y - 1)

    def _H(self, _):  # noqa: N802
        self.x = self.y = 0


class Stream(io.StringIO):
    """Counts writes: one that is shown in two parts flickers."""

    def __init__(self):
        super().__init__()
        self.writes = []

    def write(self, text):
        """Keep what is written."""
        self.writes.append(text)
        return len(text)


@pytest.fixture
def drawn():
    """Return a function that draws lists of lines on a terminal, and the terminal."""

    def call(frames, columns=20, rows=6, sizes=None, before=0):
        terminal, stream = Terminal(columns, rows), Stream()
        terminal.feed("\n" * before)
        size = [os.terminal_size((columns, rows))]
        screen = Screen(stream, lambda: size[0])
        for number, lines in enumerate(frames):
            if sizes:
                size[0] = os.terminal_size(sizes[number])
            stream.writes.clear()
            screen.draw(lines)
            assert len(stream.writes) == 1
            terminal.feed(stream.writes[0])
        return terminal

    return call


def test_a_frame_takes_the_place_of_the_one_before(drawn):
    """Shorter lines and fewer of them leave nothing behind."""
    terminal = drawn([["long first line", "second", "third"], ["short", "2nd"]])
    assert terminal.lines == ["short", "2nd", "", "", "", ""]
    assert (terminal.x, terminal.y) == (0, 2)


def test_more_than_fits_never_scrolls_the_window(drawn):
    """Scrolling would leave a copy of each frame above it."""
    many = [f"line {number}" for number in range(40)]
    terminal = drawn([many, many, many])
    assert terminal.scrolled == 0
    assert terminal.lines == [*many[:5], ""]


def test_at_the_end_of_a_window_it_scrolls_once(drawn):
    """The prompt may stand anywhere."""
    terminal = drawn([["a", "b", "c"]] * 3, before=5)
    assert terminal.lines == ["", "", "a", "b", "c", ""]
    assert terminal.scrolled == 3


def test_long_and_wide_lines_are_cut(drawn):
    """A line that the terminal breaks would take two."""
    terminal = drawn([["x" * 100, "\u6f22" * 30]] * 2)
    assert terminal.lines[0] == "x" * 19
    assert len(terminal.lines[1]) == 9
    assert terminal.lines[2] == ""


def test_another_size_begins_anew(drawn):
    """Lines were broken where nobody knows."""
    terminal = drawn([["a" * 18, "b"], ["c", "d"]], sizes=[(20, 6), (12, 6)])
    assert terminal.lines[:3] == ["c", "d", ""]


def test_signs_that_move_the_cursor_are_left_out():
    """An event's message may hold anything."""
    assert cut("a\x1b[2Jb\rc\nd\te\u0301", 80) == "a[2Jbcde\u0301"
    assert cut("abcdef", 3) == "abc"


def test_what_does_not_fit_is_counted():
    """The head stays, and the last line says how much is missing."""
    assert list(fitted(["head"], [map(str, range(9))], 5)) == [
        *("head", "0", "1", "2"),
        "... and 6 more lines",
    ]
    assert list(fitted(["head"], [["1"]], 5)) == ["head", "1"]
