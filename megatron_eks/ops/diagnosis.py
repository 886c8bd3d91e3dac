"""`meks logs --explain`: what was found in a log, for people and for programs."""

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.config.messages import paragraph
from megatron_eks.diagnosis.diagnose import Diagnosis, diagnose
from megatron_eks.diagnosis.lines import Line
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, NOT_FOUND, USAGE, Failure
from megatron_eks.ops.kube.pods import one_line
from megatron_eks.ops.output import count, formatted, picked
from megatron_eks.ops.support.text import without_secrets
from megatron_eks.programs.printable import plain

SCHEMA_VERSION = 1
_SHOWN = 300
"""Characters of a line of evidence that people are shown; programs get all."""


def of_files(paths: Sequence[Path], output: str, console: Console) -> int:
    """Explain logs saved anywhere; `-` is standard input."""
    with contextlib.ExitStack() as stack:
        lines = (line for path in paths for line in _lines(path, stack))
        return report(diagnose(lines), output, console)


def report(found: Diagnosis, output: str, console: Console) -> int:
    """Print a diagnosis; return the exit code."""
    console.write(formatted(output, _text(found), lambda: as_json(found)))
    return DONE if found.code or found.ended_well else NOT_FOUND


def as_json(found: Diagnosis) -> Json:
    """Return it as plain values; docs/schemas/explanation.json says which."""
    return {
        "schema_version": SCHEMA_VERSION,
        "code": found.code.value if found.code else None,
        **picked(found, "certain", "ended_well", "cause", "why", "remedy", "rank"),
        "evidence": [_line(line) for line in found.evidence],
        "cascades": [
            {"code": each.code.value, **picked(each, "what", "lines"), "first": _line(each.first)}
            for each in found.cascades
        ],
        **picked(found, "last_step", "lines"),
    }


def _line(line: Line) -> dict[str, Json]:
    return {"line": line.number, "rank": line.rank, "text": without_secrets(line.text.strip())}


def _text(found: Diagnosis) -> Iterator[str]:
    head = "cause" if found.certain or found.code is None else "likely"
    head = "ended" if found.ended_well else head
    yield from _paragraph(head, f"{found.cause} [{found.code}]" if found.code else found.cause)
    for line in found.evidence:
        rank = "" if line.rank is None else f", rank {line.rank}"
        text = without_secrets(one_line(line.text))[:_SHOWN]
        yield from _paragraph("seen", f"line {line.number}{rank}: {text}")
    if found.why:
        yield from _paragraph("why", found.why)
    yield from _paragraph("do", found.remedy)
    if found.last_step is not None:
        yield from _paragraph("reached", f"step {found.last_step}")
    for each in found.cascades:
        more = f"{each.what} {count(each.lines, 'line')} from {each.first.number} on [{each.code}]"
        yield from _paragraph("also", more)


def _paragraph(head: str, text: str) -> list[str]:
    return paragraph(plain(text), f"{head:9}", " " * 9)


def _lines(path: Path, stack: contextlib.ExitStack) -> Iterator[str]:
    if str(path) == "-":
        if isinstance(sys.stdin, io.TextIOWrapper):
            # A log may hold bytes that are no text.
            sys.stdin.reconfigure(errors="replace")
        yield from sys.stdin
        return
    try:
        yield from stack.enter_context(path.open(encoding="utf-8", errors="replace"))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise Failure(
            Code.FILE_UNREADABLE,
            str(error.strerror),
            "name a log file, or - for standard input",
            where=str(path),
            exit_code=NOT_FOUND if missing else USAGE,
        ) from error
