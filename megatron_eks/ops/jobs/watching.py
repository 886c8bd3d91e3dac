"""`meks status`, once or again and again: on a terminal in place, elsewhere a line a change."""

import json
import os
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from os import terminal_size
from typing import TextIO

from megatron_eks.config.load import Json
from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.kubernetes.kubeconfig import KubeconfigError
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, INTERRUPTED
from megatron_eks.ops.output import formatted
from megatron_eks.programs.printable import own

_PASSING = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.GONE,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)


@dataclass(frozen=True)
class View:
    """What was seen, in each form that it can be shown in."""

    lines: Callable[[], Iterable[str]]
    screen: Callable[[int], Sequence[str]]
    """As many lines as a window has, the important ones first."""
    news: Callable[[], Iterable[tuple[str, str]]]
    """What is told where there is no window, each with what it is known by."""
    as_json: Callable[[], dict[str, Json]]
    time: str
    ended: bool
    """Whether nothing more will change."""
    code: int = DONE
    """What the command ends with."""


@dataclass(frozen=True)
class Options:
    """How to show it."""

    output: str = "table"
    seconds: float | None = None
    """Between two looks; None: once."""
    again: str = "meks status --watch"
    """The command that goes on after Ctrl-C."""


def show(client: Client, see: Callable[[], View], options: Options, console: Console) -> int:
    """Show what is seen; with `seconds` until it has ended, or somebody presses Ctrl-C.

    Raises what `see` raises the first time; later, what passes is waited for.
    """
    if options.seconds is None:
        view = see()
        console.write(formatted(options.output, view.lines(), view.as_json))
        return view.code
    try:
        return _watch(client, see, options, console)
    except KeyboardInterrupt:
        console.say(f"\nwhat runs goes on; to look again: {options.again}")
        return INTERRUPTED


def _watch(client: Client, see: Callable[[], View], options: Options, console: Console) -> int:
    assert options.seconds is not None  # noqa: S101 -- the caller has looked
    is_window = console.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    in_place = is_window and options.output == "table"
    size = shutil.get_terminal_size
    teller = Screen(console.stdout, size) if in_place else _Lines(options.output, console)
    view = see()
    trouble = ""
    while True:
        teller.tell(view, trouble)
        if view.ended and not trouble:
            return view.code
        # A connection that sleeps between looks is one that a firewall forgets.
        client.close()
        console.clock.sleep(options.seconds)
        try:
            view, trouble = see(), ""
        except (UnreachableError, ApiError, KubeconfigError) as error:
            # What passes by itself, or when somebody logs in again.
            if isinstance(error, ApiError) and not (
                error.status in _PASSING or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            ):
                raise
            why = str(error) or type(error).__name__
            if isinstance(error, KubeconfigError):
                why = f"{error} - {error.remedy}"
            elif isinstance(error, ApiError) and error.status == HTTPStatus.UNAUTHORIZED:
                why = "it does not accept the credentials, log in again"
            trouble = f"no answer from {client.server}: {why}; trying again"


class _Lines:
    """A file or a pipe: a line for each thing that is new."""

    def __init__(self, output: str, console: Console) -> None:
        self._output, self._console = output, console
        self._told: frozenset[str] = frozenset()
        self._trouble = ""

    def tell(self, view: View, trouble: str) -> None:
        """Write what has not been written at the last look."""
        if trouble:
            if not self._trouble:
                self._console.say(trouble)
            self._trouble = trouble
            return
        self._trouble = ""
        news = dict(view.news())
        fresh = [line for key, line in news.items() if key not in self._told]
        gone = self._told - news.keys()
        self._told = frozenset(news)
        if self._output == "json":
            if fresh or gone:
                self._console.write(json.dumps(view.as_json()) + "\n")
            return
        self._console.write("".join(f"{view.time} {line}\n" for line in fresh))


def fitted(head: Iterable[str], parts: Iterable[Iterable[str]], rows: int) -> Iterator[str]:
    """Yield what fits: the head, then part by part, and at the end how much is left out."""
    lines = [*head, *(line for part in parts for line in part)]
    if len(lines) <= rows:
        yield from lines
        return
    yield from lines[: max(0, rows - 1)]
    yield f"... and {len(lines) - max(0, rows - 1)} more lines"


# Terminals that know it show what is between as one change; the others ignore it.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_WIDE = frozenset("WF")
_CLEAR_SCREEN, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[2J\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """The lines above the cursor that belong to a command, redrawn in place."""

    def __init__(self, stream: TextIO, size: Callable[[], terminal_size]) -> None:
        # `cut` leaves nothing in a line that moves the cursor: only this class does.
        self._stream, self._size = own(stream), size
        self._last: terminal_size | None = None
        self._drawn = 0

    def tell(self, view: View, trouble: str) -> None:
        """Draw what was seen last: as much as fits, for the cursor stays on the line below."""
        note = [trouble] if trouble else []
        rows = max(1, self._size().lines - 1) - len(note)
        self.draw([*view.screen(rows), *note])

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
    for char in filter(str.isprintable, text):
        wide = unicodedata.east_asian_width(char) in _WIDE
        width += 0 if unicodedata.combining(char) else 1 + wide
        if width > columns:
            break
        kept.append(char)
    return "".join(kept)
