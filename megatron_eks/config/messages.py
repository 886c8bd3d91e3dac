"""How findings and failures are written: a line each, and wrapped where somebody reads them."""

import os
from collections.abc import Iterable
from shutil import get_terminal_size
from textwrap import wrap
from typing import TextIO

from megatron_eks.config.errors import Finding, Level
from megatron_eks.programs.printable import plain

_COLOURS = {Level.ERROR: "31", Level.WARNING: "33", Level.ALLOWED: "32"}


def message(problem: str, remedy: str, stream: TextIO, level: Level = Level.ERROR) -> str:
    """Return a problem, which begins with its level, and its remedy: one line, or several.

    They are one line in a file or pipe; a terminal gets them wrapped at words, the remedy indented
    and the level in colour, unless NO_COLOR is set.
    """
    if not stream.isatty():
        return f"{problem} - {remedy}\n"
    columns = get_terminal_size().columns
    lines = paragraph(problem, "", "  ", columns) + paragraph(remedy, "    ", "    ", columns)
    text = "".join(f"{line}\n" for line in lines)
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return text.replace(level, f"\x1b[1;{_COLOURS[level]}m{level}\x1b[0m", 1)


def messages(findings: Iterable[Finding], stream: TextIO) -> str:
    """Return findings as `message` writes them."""
    lines = (message(each.problem, plain(each.remedy), stream, each.level) for each in findings)
    return "".join(lines)


def paragraph(text: str, first: str = "", rest: str = "", columns: int = 80) -> list[str]:
    """Break a text into lines; an option or a path in two cannot be copied."""
    return wrap(
        text,
        columns,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
