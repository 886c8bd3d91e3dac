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
from megatron_eks.guards.values import Place

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
        except (ValueError, LookupError, TypeError):
            lines = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            found = f"{self.name} failed with exit code {done.returncode}: {lines[-1]}"
            remedy = f"run it by hand: {self.name} {self.files[0]}"
            yield Finding(Code.LINTER, (), found, remedy).at(self.files[0], 1)


def cfn_lint(files: Sequence[str]) -> Linter:
    """Return AWS's linter of CloudFormation templates."""

    def read(printed: str) -> Iterator[Finding]:
        for each in json.loads(printed):
            path: FindingPath = tuple(each["Location"]["Path"])
            shown = (*path[:2], *(path[3:] if path[2:3] == ("Properties",) else path[2:]))
            level = _LEVELS.get(each["Level"], Level.WARNING)
            found = f"cfn-lint {each['Rule']['Id']}: {each['Message']}"
            remedy = f"read {each['Rule']['Source']}"
            line = each["Location"]["Start"]["LineNumber"]
            yield Finding(Code.LINTER, shown, found, remedy, level).at(each["Filename"], line)

    arguments = ("--format", "json", "--ignore-checks", *_IGNORED, "--template")
    return Linter("cfn-lint", files, arguments, read)


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

    def read(printed: str) -> Iterator[Finding]:
        for each in json.loads(printed):
            level = _LEVELS.get(each["level"], Level.WARNING)
            remedy = f"read https://github.com/hadolint/hadolint/wiki/{each['code']}"
            found = f"hadolint {each['code']}: {each['message']}"
            yield Finding(Code.LINTER, (), found, remedy, level).at(each["file"], each["line"])

    return Linter("hadolint", files, ("--format", "json"), read)
