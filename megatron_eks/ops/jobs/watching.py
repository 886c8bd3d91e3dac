"""`meks status`, once or again and again: on a terminal in place, elsewhere a line a change."""

import json
import os
import shutil
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus

from megatron_eks.config.load import Json
from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.kubernetes.connection import UnreachableError
from megatron_eks.kubernetes.kubeconfig import KubeconfigError
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, INTERRUPTED
from megatron_eks.ops.kube.access import explained
from megatron_eks.ops.output import formatted
from megatron_eks.programs.printable import own, plain

_PASSING = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.GONE,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True)
class View:
    """What was seen, in each form that it can be shown in."""

    lines: Callable[[], Iterable[str]]
    """The important ones first: of a window that is too small for all the others are left out."""
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
        return _watch(client, see, options, console, options.seconds)
    except KeyboardInterrupt:
        console.say(f"\nwhat runs goes on; to look again: {options.again}")
        return INTERRUPTED


def _watch(
    client: Client, see: Callable[[], View], options: Options, console: Console, seconds: float
) -> int:
    is_window = console.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    teller = _Window if is_window and options.output == "table" else _Lines
    tell = teller(options.output, console).tell
    view = see()
    trouble = ""
    while True:
        tell(view, trouble)
        if view.ended and not trouble:
            return view.code
        # A connection that sleeps between looks is one that a firewall forgets.
        client.close()
        console.clock.sleep(seconds)
        try:
            view, trouble = see(), ""
        except (UnreachableError, ApiError, KubeconfigError) as error:
            # What passes by itself, or when somebody logs in again.
            if isinstance(error, ApiError) and not (
                error.status in _PASSING or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
            ):
                raise
            trouble = f"no answer from {client.server}: {explained(error)}; trying again"


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
        before, self._told = self._told, frozenset(news)
        if self._output != "json":
            fresh = (line for key, line in news.items() if key not in before)
            self._console.write("".join(f"{view.time} {line}\n" for line in fresh))
        elif self._told != before:
            self._console.write(json.dumps(view.as_json()) + "\n")


class _Window:
    """A terminal, whose first lines are written anew at each look."""

    def __init__(self, _output: str, console: Console) -> None:
        # Nothing in a line moves the cursor: only this class does.
        self._stream = own(console.stdout)
        self._size: os.terminal_size | None = None

    def tell(self, view: View, trouble: str) -> None:
        """Draw what was seen last: as much as fits, for the cursor stays on the line below."""
        before, self._size = self._size, shutil.get_terminal_size()
        # After another size nobody knows where the terminal has broken its lines.
        clear = _CLEAR_BELOW if before != self._size else ""
        shown = fitted([*filter(None, [trouble]), *view.lines()], *self._size)
        text = "".join(f"{line}{_CLEAR_LINE}\n" for line in shown)
        self._stream.write(f"{_HOME}{clear}{text}{_CLEAR_BELOW}")
        self._stream.flush()


def fitted(lines: Iterable[str], columns: int, rows: int) -> list[str]:
    """Return lines broken as a window needs it, and at the end how many do not fit."""
    broken: list[str] = []
    for line in lines:
        broken += textwrap.wrap(plain(line), columns - 1, subsequent_indent="  ") or [""]
    left = len(broken) - (rows - 1)
    if left > 0:
        broken[-left - 1 :] = [f"... and {left + 1} more lines"]
    return broken
