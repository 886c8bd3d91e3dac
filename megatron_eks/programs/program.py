"""What a program here finds, and how it ends: exit code, JSON line, an orderly end on a signal."""

import argparse
import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from megatron_eks.programs import printable
from megatron_eks.programs.printable import plain

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_CHECK_FAILED = 4
EXIT_NOT_REACHABLE = 5
EXIT_INTERRUPTED = 130
LOW_PRIORITY = 19
"""Of what runs beside a training."""

_PR_SET_PDEATHSIG = 1

_STATUS = {
    0: "done",
    EXIT_FAILED: "failed",
    EXIT_USAGE: "usage",
    EXIT_NOT_FOUND: "not found",
    EXIT_CHECK_FAILED: "check failed",
    EXIT_NOT_REACHABLE: "not reachable",
    EXIT_INTERRUPTED: "interrupted",
}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or worth knowing, and what to do about it."""

    level: Literal["error", "warning"]
    subject: str
    found: str
    remedy: str
    usage: bool = False
    """The command line is wrong, not the world."""

    def __str__(self) -> str:
        """Return the line that people read."""
        return plain(f"{self.level} {self.subject}: {self.found} - {self.remedy}")


def error(subject: object, found: str, remedy: str) -> Finding:
    """Return a finding that stops the program."""
    return Finding("error", str(subject), found, remedy)


def usage_error(subject: object, found: str, remedy: str) -> Finding:
    """Return a finding about the command line that stops the program."""
    return Finding("error", str(subject), found, remedy, usage=True)


def warning(subject: object, found: str, remedy: str) -> Finding:
    """Return a finding that is said and does not stop the program."""
    return Finding("warning", str(subject), found, remedy)


@dataclass
class Report:
    """All findings of one run, and the facts that its JSON line carries."""

    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def collect(self, findings: Iterator[Finding]) -> None:
        """Run a check to its end and keep what it finds; what the system refuses is found too."""
        try:
            self.findings.extend(findings)
        except OSError as problem:
            place, remedy = problem.filename or "the system", "make it readable, start again"
            self.error(place, str(problem.strerror), remedy)

    def error(self, subject: object, found: str, remedy: str) -> None:
        """Keep a finding that stops the program."""
        self.findings.append(error(subject, found, remedy))

    def warning(self, subject: object, found: str, remedy: str) -> None:
        """Keep a finding that is said and does not stop the program."""
        self.findings.append(warning(subject, found, remedy))

    def note(self, fact: str, name: str) -> None:
        """Add a name to a list of the summary."""
        noted = self.facts.get(fact)
        self.facts[fact] = [*noted, name] if isinstance(noted, list) else [name]

    @property
    def exit_code(self) -> int:
        """Return 0 if nothing stops the program."""
        errors = [finding for finding in self.findings if finding.level == "error"]
        if any(finding.usage for finding in errors):
            return EXIT_USAGE
        return EXIT_CHECK_FAILED if errors else 0

    def write_findings(self) -> None:
        """Write one line for each finding on stderr."""
        for finding in self.findings:
            sys.stderr.write(f"{finding}\n")
        sys.stderr.flush()

    def write_summary(self, head: Mapping[str, object]) -> None:
        """Write the JSON line on stdout, flushed: a process may end at once."""
        messages = [str(finding) for finding in self.findings]
        sys.stdout.write(json.dumps({**head, **self.facts, "findings": messages}) + "\n")
        sys.stdout.flush()


class StopError(Exception):
    """The program cannot go on; the exit code says which kind of reason it is."""

    def __init__(self, code: int, subject: object, found: str, remedy: str) -> None:
        super().__init__(f"{subject}: {found} - {remedy}")
        self.code = code
        self.findings: tuple[Finding, ...] = (error(subject, found, remedy),)

    @property
    def finding(self) -> Finding:
        """Return the first, and mostly the only one."""
        return self.findings[0]


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is the module's docstring as it stands."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def at_least(least: int) -> Callable[[str], int]:
    """Return what reads a whole number on the command line, from a least one on."""

    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return int(text)

    return number


count = at_least(0)


def add_lifetime(options: argparse.ArgumentParser) -> None:
    """Add how long a program that looks again and again does so."""
    options.add_argument("--parent", type=int, help="process to end with; else it looks once")
    options.add_argument("--interval", type=float, default=60.0, help="seconds")


def look_again(options: argparse.Namespace, look: Callable[[], bool]) -> int:
    """Look once an interval for as long as the parent lives, or once; return the exit code."""
    if options.parent is not None:
        end_with_parent(options.parent, signal.SIGTERM)
    os.nice(LOW_PRIORITY)
    while True:
        good = look()
        if os.getppid() != options.parent:
            return 0 if good else EXIT_CHECK_FAILED
        time.sleep(options.interval)


def end_with_parent(parent: int | None = None, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send a signal when the parent is gone; it may be gone already."""
    parent = os.getppid() if parent is None else parent
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def say(message: str) -> None:
    """Write one line for people."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


@printable.guarded()
def run(name: str, main: Callable[[Sequence[str], Report], None], argv: Sequence[str]) -> int:
    """Run a program; whatever ends it, stderr says why and stdout ends with the JSON line.

    `main` puts its facts and findings into the report. SIGTERM, which Kubernetes and torchrun
    send, unwinds it as Ctrl-C does, so that its `finally` blocks clean up.
    """
    # SIGINT too: a shell starts what runs in the background with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    report = Report()
    code: int | None = None
    try:
        main(argv, report)
    except StopError as stop:
        report.findings.extend(stop.findings)
        code = stop.code
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except SystemExit as problem:  # argparse has said what is wrong, or printed the help
        if not problem.code:
            return 0
        code = EXIT_USAGE
    except OSError as problem:
        found = problem.strerror or str(problem)
        report.error(problem.filename or name, found, "see to it, then start again")
        code = EXIT_FAILED
    except Exception as problem:  # noqa: BLE001 -- the JSON line has to come, whatever happened
        traceback.print_exc()
        report.error(name, f"{type(problem).__name__}: {problem}", "read the traceback on stderr")
        code = EXIT_FAILED
    code = report.exit_code if code is None else code
    report.write_findings()
    # Under torchrun the ranks of a node share stdout.
    if os.environ.get("RANK", "0") == "0":
        try:
            report.write_summary({"program": name, "status": _STATUS[code]})
        except OSError as problem:
            say(f"cannot write the result: {problem}")
            printable.drop(sys.stdout)
            return code or EXIT_FAILED
    return code


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
