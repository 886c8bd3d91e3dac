"""What commands write to stdout: tables for people, JSON or YAML for programs."""

import json
from collections.abc import Collection, Iterator, Sequence

import yaml

from megatron_eks.config.load import Json

FORMATS = ("table", "json", "yaml")


def structured(value: Json, output: str) -> str:
    """Write plain values as JSON or YAML."""
    if output == "yaml":
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return json.dumps(value, indent=2) + "\n"


def count(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()
) -> Iterator[str]:
    """Yield the lines of a table; columns in `right` hold numbers."""
    widths = [max(len(line[column]) for line in (header, *rows)) for column in range(len(header))]
    for line in (header, *rows):
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
