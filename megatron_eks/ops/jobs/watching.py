"""`meks status`, once or again and again: on a terminal in place, elsewhere one after another."""

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

_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True)
class View:
    """What was seen, in each form that it can be shown in."""

    lines: Callable[[], Iterable[str]]
    """The important ones first: of a window that is too small for all the others are left out."""
    as_json: Callable[[], dict[str, Json]]
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
    in_place = is_window and options.output == "table"
    view, trouble, told = see(), "", ""
    while True:
        if in_place:
            _draw(console, [*filter(None, [trouble]), *view.lines()])
        elif trouble and not told:
            console.say(trouble)
        elif not trouble and options.output == "json":
            console.write(json.dumps(view.as_json()) + "\n")
        elif not trouble:
            console.write(formatted("table", [*view.lines(), ""], view.as_json))
        told = trouble
        if view.ended and not trouble:
            return view.code
        # A connection that sleeps between looks is one that a firewall forgets.
        client.close()
        console.clock.sleep(seconds)
        try:
            view, trouble = see(), ""
        except (UnreachableError, ApiError, KubeconfigError) as error:
            # All else passes by itself, or when somebody logs in again.
            if isinstance(error, ApiError) and error.status == HTTPStatus.FORBIDDEN:
                raise
            trouble = f"no answer from {client.server}: {explained(error)}; trying again"


def _draw(console: Console, lines: Iterable[str]) -> None:
    """Write as much as fits in the place of what was there; the cursor stays on the line below."""
    shown = fitted(lines, *shutil.get_terminal_size())
    text = "".join(f"{line}{_CLEAR_LINE}\n" for line in shown)
    # Nothing in a line moves the cursor: only this does.
    stream = own(console.stdout)
    stream.write(f"{_HOME}{text}{_CLEAR_BELOW}")
    stream.flush()


def fitted(lines: Iterable[str], columns: int, rows: int) -> list[str]:
    """Return lines broken as a window needs it, and at the end how many do not fit."""
    broken: list[str] = []
    for line in lines:
        broken += textwrap.wrap(plain(line), columns - 1, subsequent_indent="  ") or [""]
    left = len(broken) - (rows - 1)
    if left > 0:
        broken[-left - 1 :] = [f"... and {left + 1} more lines"]
    return broken
