"""How many branches of each package the tests take, against those that they took before.

`make coverage` measures; `python -m tests.baseline.branches REPORT` compares what `coverage json`
wrote with the committed file, and `--record` writes that.
"""

import json
import sys
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("coverage.json")

_COUNTED = ("annex/", "app.py", "charts/", "megatron_eks/", "stacks/")
# What was to go when the baseline was taken, so it is in neither side.
_NOT_COUNTED = (
    "megatron_eks/judge.py",
    "megatron_eks/ops/contexts.py",
    "megatron_eks/ops/kustomized.py",
    "megatron_eks/rules/",
)


@dataclass
class Taken:
    """What the tests ran of one package."""

    branches: int = 0
    covered_branches: int = 0
    statements: int = 0
    covered_statements: int = 0

    @property
    def share(self) -> float:
        """The share of branches that are taken."""
        return self.covered_branches / self.branches if self.branches else 1.0


def of_packages(report: Path) -> dict[str, Taken]:
    """Add up a report's files, by the package that a reader of the design knows."""
    packages: dict[str, Taken] = defaultdict(Taken)
    for file, found in json.loads(report.read_text())["files"].items():
        if file.startswith(_COUNTED) and not file.startswith(_NOT_COUNTED):
            taken, summary = packages[_package(file)], found["summary"]
            taken.branches += summary["num_branches"]
            taken.covered_branches += summary["covered_branches"]
            taken.statements += summary["num_statements"]
            taken.covered_statements += summary["covered_lines"]
    return dict(sorted(packages.items()))


def _package(file: str) -> str:
    first, *rest = file.split("/")
    if first == "megatron_eks":
        return f"megatron_eks/{rest[0]}" if len(rest) > 1 else "megatron_eks/*.py"
    return first


def less(before: Mapping[str, Taken], now: Mapping[str, Taken]) -> Iterator[str]:
    """Say of which packages a smaller share of the branches is taken now."""
    for name, taken in before.items():
        if name in now and now[name].share < taken.share:
            yield (
                f"{name}: {now[name].share:.1%} of {now[name].branches} branches, "
                f"{taken.share:.1%} of {taken.branches} before"
            )


def committed() -> dict[str, Taken]:
    """Return what the committed file says."""
    return {name: Taken(**taken) for name, taken in json.loads(FILE.read_text()).items()}


def main() -> int:
    """Compare a report with the committed file, or write that; return 1 if less is taken."""
    parser = ArgumentParser(prog="python -m tests.baseline.branches")
    parser.add_argument("report", type=Path)
    parser.add_argument("--record", action="store_true", help="write the committed file")
    arguments = parser.parse_args()
    now = of_packages(arguments.report)
    sys.stdout.writelines(
        f"{name:24} {taken.share:6.1%} of {taken.branches:5} branches\n"
        for name, taken in now.items()
    )
    if arguments.record:
        rows = {name: asdict(taken) for name, taken in now.items()}
        FILE.write_text(json.dumps(rows, indent=1) + "\n")
        return 0
    fallen = list(less(committed(), now))
    sys.stdout.writelines(f"less than before: {line}\n" for line in fallen)
    return bool(fallen)


if __name__ == "__main__":
    sys.exit(main())
