"""300 slips in the code, drawn once by a seed, and the tests that reach each of them.

`python -m tests.baseline.code_mutants` makes each slip in a copy of the checkout and runs the test
that noticed it before, then others that reach its line. It prints which slips were noticed before
and no longer are. A test that does not end in time has noticed.

Which tests reach a line is found by `tests.baseline.reach`; five of them are kept, so that a killer
that is gone has others beside it.
"""

import json
import random
import sys
import tempfile
from argparse import ArgumentParser
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path

from tests.baseline.code_operators import Place, slips
from tests.baseline.copied import ROOT, Copy

FILE = Path(__file__).with_suffix(".json")

SEED = 23
COUNT = 300
TESTS = 5
# Code that was to go when the mutants were drawn, and code that other interpreters run.
_NOT_DRAWN = (
    "megatron_eks/judge.py",
    "megatron_eks/demo/megatron/",
    "megatron_eks/ops/contexts.py",
    "megatron_eks/ops/kustomized.py",
    "megatron_eks/programs/",
    "megatron_eks/rules/",
)
_SECONDS = 60
_SECONDS_OF_A_TEST = 10
_SECONDS_OF_MANY = 20
# Tests that look at what others rendered reach none of the lines that rendered it.
_RENDERED = (
    "charts/",
    "megatron_eks/catalog/",
    "megatron_eks/config/",
    "megatron_eks/plan/",
    "stacks/",
)
_SNAPSHOTS = "tests/snapshots"


@dataclass(frozen=True)
class Mutant:
    """One slip, and what became of it."""

    place: Place
    outcome: str = "not run"
    """`killed` by the first of its tests, `survived`, `not run`, or `equivalent`, as a reader saw:
    then no test can notice, and none is run."""
    tests: Sequence[str] = ()
    """Tests that reach the line, the fastest first behind the one that noticed."""

    @property
    def killed(self) -> bool:
        """Whether a test noticed."""
        return self.outcome == "killed"


def committed() -> list[Mutant]:
    """Return the mutants of the committed file."""
    read = json.loads(FILE.read_text())
    return [Mutant(Place(**each.pop("place")), **each) for each in read]


def save(mutants: Iterable[Mutant]) -> None:
    """Write the committed file, a mutant in each line."""
    rows = ",\n".join(json.dumps(asdict(mutant)) for mutant in mutants)
    written = FILE.with_suffix(".new")
    written.write_text(f"[\n{rows}\n]\n")
    written.replace(FILE)  # tests that run meanwhile read all of the one or of the other


def drawn() -> list[Mutant]:
    """Draw files by their length, then an operator, then one of its places."""
    draw = random.Random(SEED)  # noqa: S311 -- a sample, not a secret
    folders = ("annex", "charts", "megatron_eks", "stacks")
    paths = [ROOT / "app.py", *(path for each in folders for path in (ROOT / each).rglob("*.py"))]
    files = sorted(str(path.relative_to(ROOT)) for path in paths)
    files = [file for file in files if not file.startswith(_NOT_DRAWN)]
    sources = {file: (ROOT / file).read_bytes() for file in files}
    lengths = [sources[file].count(b"\n") for file in files]
    chosen: set[Place] = set()
    while len(chosen) < COUNT:
        [file] = draw.choices(files, lengths)
        # By operator first, or every other mutant would be an assignment that is missed at once.
        by_operator: dict[str, list[Place]] = defaultdict(list)
        for place in slips(file, sources[file]):
            by_operator[place.operator].append(place)
        if by_operator:
            chosen.add(draw.choice(by_operator[draw.choice(sorted(by_operator))]))
    return [Mutant(place) for place in sorted(chosen)]


class Reached:
    """What `tests.baseline.reach` wrote."""

    def __init__(self, file: Path) -> None:
        """Read the file."""
        self._seconds: dict[str, float] = {}
        self._tests: dict[int, set[str]] = defaultdict(set)
        for line in file.read_text().splitlines():
            seen = json.loads(line)
            if "seconds" in seen:
                self._seconds[seen["test"]] = seen["seconds"]
            elif seen["test"]:
                self._tests[seen["mutant"]].add(seen["test"])

    def tests(self, mutant: int) -> list[str]:
        """Return fast tests that differ, then as many more as may run, the fastest first."""
        in_order = sorted(self._tests[mutant], key=self._order)
        first = {test.partition("[")[0]: test for test in reversed(in_order)}
        few = sorted(first.values(), key=self._order)[:TESTS]
        more = [test for test in in_order if test not in few]
        ends = accumulate(self._order(test)[0] for test in more)
        return [*few, *(t for t, end in zip(more, ends, strict=True) if end < _SECONDS_OF_MANY)]

    def _order(self, test: str) -> tuple[float, str]:
        return self._seconds.get(test, 1.0), test


def tried(copy: Copy, mutant: Mutant, *, thorough: bool) -> Mutant | None:
    """Return a mutant with what becomes of it now, and nothing if its line is gone."""
    file, tests = mutant.place.file, list(mutant.tests)
    source = (ROOT / file).read_bytes() if (ROOT / file).exists() else b""
    slip = slips(file, source).get(mutant.place)
    if not slip:
        return None
    if mutant.outcome == "equivalent":
        return mutant
    spoilt = slip.made_in(source)
    if file.startswith(_RENDERED) and (thorough or mutant.killed):
        tests.append(_SNAPSHOTS)
    while killer := copy.first_failure(file, spoilt, tests, seconds=_seconds(tests)):
        # What fails anyway has noticed nothing.
        if not copy.first_failure(file, source, [killer], seconds=_seconds([killer])):
            noticed = dict.fromkeys([killer, *mutant.tests])
            return replace(mutant, outcome="killed", tests=list(noticed))
        tests.remove(killer)
    return replace(mutant, outcome="survived" if mutant.tests else "not run")


def _seconds(tests: Sequence[str]) -> int:
    return _SECONDS + _SECONDS_OF_A_TEST * len(tests)


def main() -> int:
    """Compare with the committed file, or write it; return 1 if something passes now."""
    parser = ArgumentParser(prog="python -m tests.baseline.code_mutants")
    parser.add_argument("--draw", action="store_true", help="only draw the mutants anew")
    parser.add_argument("--reached", type=Path, help="try all tests of what reach wrote, not a few")
    parser.add_argument("--record", action="store_true", help="keep what becomes of them now")
    parser.add_argument("--survivors", action="store_true", help="leave out those that are killed")
    parser.add_argument("--only", default="", help="how the names of files begin")
    arguments = parser.parse_args()
    if arguments.draw:
        save(drawn())
        return 0
    mutants = committed()
    reached = arguments.reached and Reached(arguments.reached)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        for number, before in enumerate(mutants):
            place = before.place
            if not place.file.startswith(arguments.only) or (arguments.survivors and before.killed):
                continue
            trial = before
            if reached:
                tests = [*before.tests[: before.killed], *reached.tests(number)]
                trial = replace(before, tests=list(dict.fromkeys(tests)))
            now = tried(copy, trial, thorough=bool(reached))
            outcome = now.outcome if now else "gone"
            if now and before.killed and not now.killed:
                outcome = "NO LONGER KILLED"
            counts[outcome] += 1
            by = now.tests[0] if now and now.killed else ""
            sys.stdout.write(f"{outcome}: {place.file}: {place.line} ({place.operator}) {by}\n")
            sys.stdout.flush()
            if arguments.record and now:
                mutants[number] = replace(now, tests=now.tests[:TESTS])
                save(mutants)
    sys.stdout.write(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + "\n")
    return "NO LONGER KILLED" in counts


if __name__ == "__main__":
    sys.exit(main())
