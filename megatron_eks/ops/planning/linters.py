"""Public tools that judge what the guards leave to them, where they are installed."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from megatron_eks.catalog.pins import AMI_RELEASES
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.errors import Path as FindingPath
from megatron_eks.guards.values import Place, Value

# W3010 wants zones looked up, and a GPU pool's zone is chosen because capacity is there; W3005 is
# about dependencies that the CDK writes out.
_IGNORED = ("W3010", "W3005")
_LEVELS: Mapping[str, Level] = {"Error": Level.ERROR, "error": Level.ERROR}
_REFUSED = re.compile(
    r"ERROR (?P<file>.+) did not validate for resource (?P<object>\S+) against version \S+: "
    r"(?P<path>.*?): (?P<found>.*)"
)


@dataclass(frozen=True)
class Linter:
    """One tool and the files that it judges."""

    name: str
    files: Sequence[str]
    arguments: Sequence[str]
    read: Callable[[str], Iterator[Finding]]
    """Makes findings of what it prints."""

    @property
    def state(self) -> str:
        """Its name, and whether it judged."""
        return self.name if self._program else f"{self.name} (not installed)"

    @property
    def _program(self) -> str | None:
        """The program of this environment, or else of the machine."""
        beside = str(Path(sys.executable).parent)
        return shutil.which(self.name, path=beside) or shutil.which(self.name)

    def findings(self) -> Iterator[Finding]:
        """Run it, if it is installed."""
        if self._program is None:
            return
        command = [self._program, *self.arguments, *self.files]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- a tool that the user installed
        try:
            yield from self.read(done.stdout)
        except (ValueError, KeyError):
            lines = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            found = f"{self.name} failed with exit code {done.returncode}: {lines[-1]}"
            remedy = f"run it by hand: {self.name} {self.files[0]}"
            yield Finding(Code.LINTER, (), found, remedy).at(self.files[0], 1)


def cfn_lint(files: Sequence[str]) -> Linter:
    """Return AWS's linter of CloudFormation templates."""
    arguments = ("--format", "json", "--ignore-checks", *_IGNORED, "--template")
    return Linter("cfn-lint", files, arguments, _of_cfn_lint)


def kubernetes_validate(files: Sequence[str], objects: Iterable[Place]) -> Linter:
    """Return the schemas of Kubernetes' own kinds; what they refuse is placed at its object."""
    places = {(each.file, str(each.path[0]).lower()): each for each in objects}

    def read(printed: str) -> Iterator[Finding]:
        for match in filter(None, map(_REFUSED.fullmatch, printed.splitlines())):
            place = places[match["file"], match["object"].lower()]
            path: FindingPath = (*place.path, *([match["path"]] if match["path"] else []))
            remedy = "correct it: the API server refuses or drops it"
            found = f"kubernetes-validate: {match['found']}"
            yield Finding(Code.LINTER, path, found, remedy).at(place.file, place.line())

    arguments = ("--strict", "--quiet", "--no-warn", "-k", max(AMI_RELEASES))
    return Linter("kubernetes-validate", files, arguments, read)


def hadolint(files: Sequence[str]) -> Linter:
    """Return the linter of Dockerfiles."""
    return Linter("hadolint", files, ("--format", "json"), _of_hadolint)


def _of_cfn_lint(printed: str) -> Iterator[Finding]:
    for each in _elements(printed):
        path = tuple(part.text or int(part.number or 0) for part in each["Location"]["Path"])
        shown = (*path[:2], *(path[3:] if path[2:3] == ("Properties",) else path[2:]))
        level = _LEVELS.get(each["Level"].text, Level.WARNING)
        found = f"cfn-lint {each['Rule']['Id'].text}: {each['Message'].text}"
        finding = Finding(Code.LINTER, shown, found, f"read {each['Rule']['Source'].text}", level)
        line = each["Location"]["Start"]["LineNumber"].number
        yield finding.at(each["Filename"].text, int(line or 1))


def _of_hadolint(printed: str) -> Iterator[Finding]:
    for each in _elements(printed):
        level = _LEVELS.get(each["level"].text, Level.WARNING)
        remedy = f"read https://github.com/hadolint/hadolint/wiki/{each['code'].text}"
        found = f"hadolint {each['code'].text}: {each['message'].text}"
        finding = Finding(Code.LINTER, (), found, remedy, level)
        yield finding.at(each["file"].text, int(each["line"].number or 1))


def _elements(printed: str) -> Iterator[Value]:
    """Return the elements of a list in JSON; raise ValueError for anything else."""
    return iter(Value(json.loads(printed), Place("", ())))
