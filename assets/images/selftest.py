"""Tests of a built image, on CPUs and without a network, as its build and `meks build` run them.

selftest.py --image megatron|fsdp --level quick|standard|full [--report FILE.xml] [--case NAME]...

quick     the gate, what programs import, and that each of them starts
standard  and each kind of program once, in one process: data preparation, FSDP, DDP, storage
full      and several ranks: data preparation with several workers, FSDP on two ranks, a
          checkpoint that another number of ranks goes on from, all-reduce

One line for each case on stderr, the last lines of what failed, a JUnit report if asked for, and
one line of JSON on stdout. Exit codes: 0 all passed, 2 the command line is wrong, 4 one failed.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree.ElementTree import Element, ElementTree, SubElement

import selftest_cases
from image_probe import MODULES
from selftest_cases import Case, FailedError

from megatron_eks.programs import program
from megatron_eks.programs.program import Report, error

_TAIL_LINES = 20


@dataclass(frozen=True)
class Outcome:
    """How one case ended."""

    case: Case
    seconds: float
    problem: str
    """Empty: it passed."""


def run_cases(cases: Sequence[Case], image: str) -> list[Outcome]:
    """Run the cases one after the other; later ones run whatever became of earlier ones."""
    outcomes = []
    with TemporaryDirectory() as folder:
        for case in cases:
            began = time.monotonic()
            problem = ""
            try:
                case.run(Path(folder), image)
            except FailedError as failed:
                problem = str(failed)
            seconds = time.monotonic() - began
            verdict = "FAILED" if problem else "passed"
            program.say(f"{case.level:<9} {case.name:<12} {verdict} {seconds:6.1f} s")
            for line in problem.splitlines()[-_TAIL_LINES:]:
                program.say(f"    {line}")
            outcomes.append(Outcome(case, seconds, problem))
    return outcomes


def write_report(path: Path, image: str, outcomes: Sequence[Outcome]) -> None:
    """Write what CodeBuild's test reports read (JUnit XML)."""
    failures = sum(bool(each.problem) for each in outcomes)
    suite = Element(
        "testsuite",
        name=f"image {image}",
        tests=str(len(outcomes)),
        failures=str(failures),
        errors="0",
        time=f"{sum(each.seconds for each in outcomes):.3f}",
    )
    for each in outcomes:
        case = SubElement(
            suite,
            "testcase",
            classname=f"{image}.{each.case.level}",
            name=each.case.name,
            time=f"{each.seconds:.3f}",
        )
        if each.problem:
            SubElement(case, "failure", message=each.problem.splitlines()[-1]).text = each.problem
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def main(argv: Sequence[str], report: Report) -> None:
    """Run the cases of a level and say what failed."""
    options = _parser().parse_args(argv)
    cases = selftest_cases.up_to(options.level)
    if options.case:
        cases = [case for case in cases if case.name in options.case]
    outcomes = run_cases(cases, options.image)
    if options.report is not None:
        write_report(options.report, options.image, outcomes)
    report.facts.update(
        image=options.image,
        level=options.level,
        passed=[each.case.name for each in outcomes if not each.problem],
        failed=[each.case.name for each in outcomes if each.problem],
    )
    for each in outcomes:
        if each.problem:
            found = f"failed: {each.problem.splitlines()[-1]}"
            again = f"selftest.py --image {options.image} --level full --case {each.case.name}"
            report.findings.append(error(each.case.name, found, f"run it alone: {again}"))


def _parser() -> argparse.ArgumentParser:
    parser = program.parser(__doc__)
    parser.add_argument("--image", choices=sorted(MODULES), required=True)
    parser.add_argument("--level", choices=selftest_cases.LEVELS, default="standard")
    parser.add_argument("--report", type=Path, metavar="FILE.xml", help="for CodeBuild's reports")
    names = [case.name for case in selftest_cases.CASES]
    parser.add_argument("--case", choices=names, action="append", help="of the level, these alone")
    return parser


if __name__ == "__main__":
    sys.exit(program.run("selftest", main, sys.argv[1:]))
