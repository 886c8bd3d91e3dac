"""`make slips`: makes slips in what the project renders, and counts who notices them."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from megatron_eks import node
from tests.slips import population, scenes
from tests.slips.population import PART, Slip
from tests.slips.results import Noticed, Results
from tests.slips.tools import Says, tools

_PROGRESS = 500


class Judges:
    """The guards and the tools; who says more with a slip than without it has noticed it."""

    def __init__(self, guards: Says, tools: Sequence[Says], *, both: bool) -> None:
        self._guards, self._tools, self._both = guards, tools, both
        self._before: dict[tuple[Says, str, str, int], frozenset[str]] = {}

    def who_notices(self, slip: Slip) -> Noticed:
        """Ask the guards, and the tools if the guards let it pass or if both are to be asked."""
        by_guards = self._notices(self._guards, slip)
        if by_guards and not self._both:
            return Noticed.GUARDS
        by_tools = any(self._notices(tool, slip) for tool in self._tools)
        if by_guards:
            return Noticed.BOTH if by_tools else Noticed.GUARDS_ALONE
        return Noticed.TOOLS_ALONE if by_tools else Noticed.NOBODY

    def _notices(self, says: Says, slip: Slip) -> bool:
        scene = scenes.before(slip)
        key = (says, slip.cluster, slip.file, slip.document)
        if key not in self._before:
            self._before[key] = says(scene)
        return bool(says(scenes.after(scene, slip)) - self._before[key])


def main() -> int:
    """Try the slips that are asked for, print the table, and say which have no reason to pass."""
    given = _parser().parse_args()
    node.use_bundled_node()
    every = population.population()
    slips = [
        slip
        for slip in every
        if slip.is_in_part(1 if given.all else given.part)
        and (not given.only or slip.row.startswith(tuple(given.only)))
    ]
    _progress(f"{len(slips):,} of {len(every):,} slips")
    with tempfile.TemporaryDirectory() as scratch, tools(Path(scratch)) as asked:
        results = _tried(slips, Judges(scenes.said_by_guards, asked, both=given.both))
    sys.stdout.write(results.table())
    missing = results.without_reason()
    why = "nobody notices, and survivors.yaml has no reason"
    sys.stdout.writelines(f"{why}: {each}\n" for each in missing)
    return 1 if missing else 0


def _tried(slips: Sequence[Slip], judges: Judges) -> Results:
    start = time.monotonic()
    noticed = []
    for number, slip in enumerate(slips):
        if number and number % _PROGRESS == 0:
            _progress(f"{number:,} tried in {time.monotonic() - start:.0f} s")
        noticed.append((slip, judges.who_notices(slip)))
    _progress(f"all tried in {time.monotonic() - start:.0f} s")
    return Results(noticed)


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make slips", description=__doc__)
    parser.add_argument("--all", action="store_true", help="try all; ALL=1 with make")
    parser.add_argument(
        "--both",
        action="store_true",
        help="ask the tools of what the guards notice, too; BOTH=1 with make",
    )
    parser.add_argument(
        "--part", type=int, default=PART, metavar="N", help=f"try one of N; default: {PART}"
    )
    parser.add_argument(
        "--only", action="append", metavar="ROW", help="a stack or chart, or how several begin"
    )
    return parser


if __name__ == "__main__":
    # A tool may look for files where it stands.
    os.chdir(Path(__file__).parents[2])
    sys.exit(main())
