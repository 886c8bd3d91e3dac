"""What commands write: tables for people, JSON or YAML for programs, files of the user's."""

import functools
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.config.messages import messages
from megatron_eks.ops.failure import Failure
from megatron_eks.programs.printable import plain, printable


def picked(whole: object, *names: str) -> dict[str, Json]:
    """Return attributes as plain values, by name; `shown=name` shows one by another name."""
    pairs = (name.partition("=")[::2] for name in names)
    return {shown: getattr(whole, name or shown) for shown, name in pairs}


def structured(value: Json, output: str) -> str:
    """Write plain values as JSON or YAML."""
    if output == "yaml":
        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
        # What a terminal must not get, YAML can say in ASCII.
        return text if printable(text) == text else yaml.safe_dump(value, sort_keys=False)
    return json.dumps(value, indent=2) + "\n"


def formatted(output: str, lines: Iterable[str], value: Callable[[], Json]) -> str:
    """Write lines for people, or plain values as JSON or YAML; only one of them is made."""
    if output == "table":
        return "".join(f"{line}\n" for line in lines)
    return structured(value(), output)


def write_findings(findings: Sequence[Finding], output: str, stdout: TextIO) -> None:
    """Write findings for people, or as a JSON or YAML list."""
    if output == "table":
        stdout.write(messages(findings, stdout))
    else:
        stdout.write(structured([dict(finding.as_json()) for finding in findings], output))
    stdout.flush()


def count(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counted(findings: Iterable[Finding]) -> str:
    """Write how many findings there are of each level; of those allowed only where there are."""
    levels = Counter(finding.level for finding in findings)
    written = f"{count(levels[Level.ERROR], 'error')}, {count(levels[Level.WARNING], 'warning')}"
    allowed = levels[Level.ALLOWED]
    return f"{written}, {allowed} allowed" if allowed else written


def usd(price: float | None, digits: int = 2) -> str:
    """Write a price."""
    return "unknown" if price is None else f"{price:,.{digits}f}"


def step_time(seconds: float) -> str:
    """Write what a step takes, with three digits or all before the point."""
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:,.0f} s"  # noqa: PLR2004 -- 1e+03


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()
) -> Iterator[str]:
    """Yield the lines of a table; columns in `right` hold numbers."""
    rows = [[plain(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]
    for line in (header, *rows):
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def size(number: Json) -> str:
    """Write bytes as people say them."""
    left = float(number) if isinstance(number, int | float) else 0.0
    for unit in ("B", "kB", "MB", "GB"):
        if left < 1000:  # noqa: PLR2004 -- a unit is a thousand of the one before
            return f"{left:.0f} {unit}" if left >= 10 or unit == "B" else f"{left:.1f} {unit}"  # noqa: PLR2004
        left /= 1000
    return f"{left:.1f} TB"


def replace_file(file: Path, text: str, remedy: str, *, mode: int = 0o666) -> None:
    """Put a text in the place of a file; what was there stays where that fails."""
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            opener = functools.partial(os.open, mode=mode)
            with open(partial, "w", encoding="utf-8", opener=opener) as stream:
                stream.write(text)
            partial.replace(file)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    except OSError as error:
        found = f"{file} cannot be written: {error.strerror or error}"
        remedy = f"see to the disk and the folder, {remedy}"
        raise Failure(Code.NOT_WRITTEN, found, remedy) from error
