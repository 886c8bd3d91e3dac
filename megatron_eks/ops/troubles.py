"""Writes the table of the source guides' troubles in docs/runbook.md; run by `make generate`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from megatron_eks.config.load import read_mapping

DOCS = Path(__file__).parents[2] / "docs"
RUNBOOK, TABLE = DOCS / "runbook.md", DOCS / "troubles.yaml"

_REGION = re.compile(r"(<!-- generated: troubles -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True)
class Trouble:
    """One row of a source guide."""

    guide: str
    row: str
    section: str
    codes: tuple[str, ...]
    shows: str
    """What a log prints; nothing where no log does."""
    wrong: str
    """Where the guide is not followed, and why."""


def troubles() -> list[Trouble]:
    """Read the rows."""
    table = read_mapping(TABLE.read_text(encoding="utf-8"), TABLE.name).value
    found = []
    for guide, rows in table.items() if isinstance(table, dict) else ():
        for row in rows if isinstance(rows, list) else ():
            given = row if isinstance(row, dict) else {}
            codes = given["codes"]
            found.append(
                Trouble(
                    guide=guide,
                    row=str(given["row"]),
                    section=str(given["section"]),
                    codes=tuple(map(str, codes)) if isinstance(codes, list) else (),
                    shows=str(given.get("shows", "")),
                    wrong=str(given.get("wrong", "")),
                )
            )
    return found


def written(text: str) -> str:
    """Return the runbook with its table made anew."""
    table = "\n".join(_lines())
    return _REGION.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text)


def anchor(heading: str) -> str:
    """Return how a heading is linked."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _lines() -> Iterator[str]:
    yield "| guide | row | reported by | what to do | where this project differs |"
    yield "|---|---|---|---|---|"
    for each in troubles():
        codes = ", ".join(code.removeprefix("MEKS-") for code in each.codes)
        link = f"[{each.section}](#{anchor(each.section)})"
        yield f"| {each.guide} | {each.row} | {codes} | {link} | {each.wrong} |"


def main() -> None:
    """Write the table."""
    RUNBOOK.write_text(written(RUNBOOK.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
