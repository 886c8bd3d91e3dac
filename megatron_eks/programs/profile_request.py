"""Asks a job for a profile of some steps, and says what there is of profiles.

profile_request DIR [--steps FIRST:LAST] [--rank N]... [--nsys]

DIR holds a folder for each start of the job. The request stands in DIR/profile.json: ranks of a
trainer that runs look there between steps, and those of a later start too. A rank that has given
its trace since the request gives no other. Without --rank the first rank and the last are asked.
With --nsys it is the next start whose ranks look: Nsight Systems traces what it has started itself.

On stdout one JSON line: `asked`, which is null if nobody has, and `found`, the newest folder of
traces, with `files` and `bytes`.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from megatron_eks.programs import program
from megatron_eks.programs.program import Report

FILE, FOLDER = "profile.json", "profile"
LEAST, MOST_STEPS = 3, 10
"""The first two steps compile and allocate; the trace of one may have 100,000 events."""


@dataclass(frozen=True)
class Wish:
    """Steps that somebody wants to see into."""

    first: int
    last: int
    ranks: tuple[int, ...] = ()
    """Empty: the first and the last one."""
    nsys: bool = False
    """Whether Nsight Systems is to trace them, and not PyTorch's profiler."""

    @classmethod
    def read(cls, file: Path) -> "Wish":
        """Read a request. Raises OSError, ValueError and TypeError where it is none."""
        found = json.loads(file.read_text())
        ranks = tuple(map(int, found["ranks"]))
        return cls(int(found["first"]), int(found["last"]), ranks, bool(found.get("nsys")))


def steps(text: str) -> tuple[int, int]:
    """Read FIRST:LAST; raise ValueError with what is wrong."""
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal()):
        raise ValueError(f"{text!r} is not FIRST:LAST, such as 10:12")
    found = int(first), int(last)
    if not LEAST <= found[0] <= found[1] < found[0] + MOST_STEPS:
        raise ValueError(f"{text!r} is not at most {MOST_STEPS} steps, from step {LEAST} on")
    return found


def main(argv: Sequence[str], report: Report) -> None:
    """Write the request, if there is one, and look around."""
    parser = program.parser(__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="a job's logs")
    parser.add_argument("--steps", type=_steps, metavar="FIRST:LAST", help="what to ask for")
    parser.add_argument("--rank", type=int, action="append", default=[], help="of this rank")
    parser.add_argument("--nsys", action="store_true", help="by Nsight Systems, from a start on")
    options = parser.parse_args(argv)
    file = options.directory / FILE
    if options.steps:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f".{FILE}")
        first, last = options.steps
        wish = Wish(first, last, tuple(options.rank), options.nsys)
        partial.write_text(json.dumps(asdict(wish)))
        partial.replace(file)
    every = {each: each.stat() for each in options.directory.glob(f"*/{FOLDER}/rank-*")}
    # A report of nsys is empty until nsys has written it.
    ages = {each: status.st_mtime for each, status in every.items() if status.st_size}
    found = max(ages, key=ages.__getitem__).parent if ages else None
    traces = sorted(each for each in ages if each.parent == found)
    report.facts["asked"] = json.loads(file.read_text()) if file.exists() else None
    report.facts["found"] = str(found) if found else None
    report.facts["files"] = [each.name for each in traces]
    report.facts["bytes"] = sum(every[each].st_size for each in traces)


def _steps(text: str) -> tuple[int, int]:
    try:
        return steps(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


if __name__ == "__main__":
    sys.exit(program.run("profile_request", main, sys.argv[1:]))
