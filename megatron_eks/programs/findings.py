"""What the checks of a program found, and how it says so: stderr, a JSON line and exit codes."""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from megatron_eks.programs.printable import plain

EXIT_USAGE = 2
EXIT_CHECK_FAILED = 4


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
            place = problem.filename or "the system"
            self.findings.append(
                error(place, str(problem.strerror), "make it readable, start again")
            )

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
