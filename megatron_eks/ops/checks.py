"""Checks of what exists: each has a name and a function from what was read to findings."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TextIO, TypeVar

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, has_errors
from megatron_eks.config.load import Json
from megatron_eks.config.messages import messages
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import CHECK_FAILED, DONE, Failure
from megatron_eks.ops.output import counted, formatted, picked, table
from megatron_eks.plan.cluster.cluster import ClusterPlan

SCHEMA_VERSION = 1

AWS, KUBERNETES = "aws", "kubernetes"
"""Where a finding is that stands in no file."""

_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Check(Generic[_Read]):
    """One thing that is looked at."""

    name: str
    judge: Callable[[_Read], Iterable[Finding]]
    applies: Callable[[_Read], bool] = lambda _: True
    """Whether there is anything to look at."""


@dataclass(frozen=True)
class Result:
    """What a check found."""

    name: str
    findings: tuple[Finding, ...]
    skipped: bool = False
    """Whether there is nothing of that kind yet."""
    measured: Mapping[str, Json] = field(default_factory=dict)
    """Numbers of a check on the hardware."""

    @property
    def verdict(self) -> str:
        """Say it in a word."""
        if has_errors(self.findings):
            return "failed"
        if any(each.code is Code.NOT_CHECKED for each in self.findings):
            return "not checked"
        if self.findings:
            return "warning"
        return "nothing yet" if self.skipped else "passed"


def judged(
    checks: Iterable[Check[_Read]],
    read: _Read,
    refused: Callable[[Exception], Failure | None] = lambda _: None,
    file: str = AWS,
) -> list[Result]:
    """Make all checks; one that may not look is told beside what was seen, as `refused` says it."""
    code, level = Code.NOT_CHECKED, Level.WARNING
    results: list[Result] = []
    for check in checks:
        found: list[Finding] = []
        applies = True
        try:
            if applies := check.applies(read):
                found.extend(check.judge(read))
        except Exception as error:
            if (why := refused(error)) is None:
                raise
            found.append(Finding(code, (check.name,), why.found, why.remedy, level, file=file))
        results.append(Result(check.name, tuple(dict.fromkeys(found)), skipped=not applies))
    return results


in_aws, in_kubernetes = partial(Finding, file=AWS), partial(Finding, file=KUBERNETES)
"""Return a finding about something in AWS, and about something in the cluster."""


def report(
    plan: ClusterPlan, results: Sequence[Result], output: str, console: Console, **about: str
) -> int:
    """Print all checks and findings; return the exit code that they make."""
    findings = [finding for result in results for finding in result.findings]
    console.write(
        formatted(output, _lines(results, console.stdout), lambda: as_json(plan, results, **about))
    )
    console.say(f"{len(results)} checks: {counted(findings)}")
    return CHECK_FAILED if has_errors(findings) else DONE


def as_json(plan: ClusterPlan, results: Sequence[Result], **about: str) -> dict[str, Json]:
    """Return all checks as plain values; `about` is what they are of besides the cluster."""
    return {
        "schema_version": SCHEMA_VERSION,
        "cluster": plan.name,
        "region": plan.region,
        **about,
        "passed": not any(has_errors(each.findings) for each in results),
        "checks": [
            {
                **picked(result, "name", "verdict"),
                **({"measured": dict(result.measured)} if result.measured else {}),
                "findings": [dict(finding.as_json()) for finding in result.findings],
            }
            for result in results
        ],
    }


def _lines(results: Sequence[Result], stdout: TextIO) -> Iterator[str]:
    columns = 3 if any(result.measured for result in results) else 2
    rows = []
    for each in results:
        measured = ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in each.measured.items()
        )
        rows.append((each.name, each.verdict, measured)[:columns])
    yield from table(("CHECK", "RESULT", "MEASURED")[:columns], rows)
    findings = dict.fromkeys(finding for result in results for finding in result.findings)
    if findings:
        yield ""
        yield messages(findings, stdout).removesuffix("\n")
