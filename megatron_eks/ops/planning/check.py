"""`meks check`: applies the guards to templates and manifests on disk, then the public tools."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TextIO

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, has_errors
from megatron_eks.config.load import MAX_DEPTH, Document, Json, read_documents, read_json
from megatron_eks.config.scalars import scalar_1_1
from megatron_eks.guards.check import bodies_in, check_bodies, check_templates
from megatron_eks.guards.manifests import is_manifest
from megatron_eks.guards.nodes import pool_types
from megatron_eks.guards.templates import Templates, is_template
from megatron_eks.guards.values import Value
from megatron_eks.ops.failure import DONE, USAGE
from megatron_eks.ops.output import count, counted, write_findings
from megatron_eks.ops.planning.linters import Linter, cfn_lint, hadolint, kubernetes_validate

_SUFFIXES = frozenset({".json", ".template", ".yaml", ".yml"})
_SKIPPED = frozenset({"node_modules"})
_ASSET = "asset."
"""The CDK's copies of what images are built from: programs, and nothing that is deployed."""
_NAMED = 4
"""So many files without an opinion are named, and the rest counted."""


def run(paths: Sequence[Path], output: str, stdout: TextIO) -> int:
    """Check files and directories, print what is found, and return the exit code."""
    files = Files()
    for path in paths:
        files.add(path)
    linters = files.linters()
    said = (each for linter in linters for each in linter.findings())
    findings = sorted([*files.findings(), *said], key=_order)
    write_findings(findings, output, stdout)
    if files.unknown:
        more = len(files.unknown) - _NAMED
        named = files.unknown[:_NAMED] + ([f"and {more} more"] if more > 0 else [])
        sys.stderr.write(f"no opinion on {', '.join(named)}\n")
    judged = ", ".join(["the guards", *(each.state for each in linters)])
    sys.stderr.write(f"checked {files.counted()} by {judged}: {counted(findings)}\n")
    return USAGE if has_errors(findings) else DONE


def _order(finding: Finding) -> tuple[int, str, int, str, tuple[tuple[int, str], ...]]:
    # The tenth element of a list comes after the second.
    place = tuple((part, "") if isinstance(part, int) else (-1, part) for part in finding.path)
    return ([*Level].index(finding.level), finding.file, finding.line, finding.code, place)


@dataclass
class Files:
    """What was read so far, by what it holds; each file once, however often it is named."""

    templates: dict[Path, dict[str, Document]] = field(default_factory=dict)
    """By directory: those of one directory are deployed together."""
    manifests: dict[str, list[Value]] = field(default_factory=dict)
    """By file: its Kubernetes objects, each with its place."""
    dockerfiles: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Files that hold nothing which this project renders."""
    _seen: set[Path] = field(default_factory=set)
    _texts: dict[str, str] = field(default_factory=dict)
    _findings: list[Finding] = field(default_factory=list)

    def counted(self) -> str:
        """Say how much was judged."""
        templates = sum(len(each) for each in self.templates.values())
        parts = [count(templates, "template"), count(len(self.objects), "object")]
        if self.dockerfiles:
            parts.append(count(len(self.dockerfiles), "Dockerfile"))
        return f"{', '.join(parts[:-1])} and {parts[-1]}"

    @property
    def objects(self) -> list[Value]:
        """The objects of all manifests, which are applied together."""
        return [body for bodies in self.manifests.values() for body in bodies]

    def add(self, path: Path) -> None:
        """Read a file, or every template, manifest and Dockerfile below a directory."""
        if not path.is_dir():
            self._add_file(path, named=True)
            return
        before, empty = len(self._findings), True
        for folder, names, files in os.walk(path, onerror=self._unreadable):
            kept = (name for name in names if name not in _SKIPPED and name[0] != ".")
            names[:] = sorted(name for name in kept if not name.startswith(_ASSET))
            for name in sorted(files):
                file = Path(folder, name)
                wanted = file.suffix.lower() in _SUFFIXES or _is_dockerfile(name)
                if wanted and name[0] != "." and file.is_file():
                    empty = False
                    self._add_file(file, named=False)
        if empty and len(self._findings) == before:
            self._report(Code.NOTHING_TO_CHECK, path, "no template and no manifest in it")

    def findings(self) -> Iterator[Finding]:
        """Apply the guards."""
        yield from self._findings
        pools: dict[str, str] = {}
        for together in self.templates.values():
            bodies = {file: document.value for file, document in together.items()}
            yield from check_templates(bodies, self._texts.__getitem__)
            pools |= pool_types(Templates(bodies))
        yield from check_bodies(self.objects, pools)

    def linters(self) -> list[Linter]:
        """Return the public tools that have something to judge."""
        templates = [file for each in self.templates.values() for file in each]
        found = [
            cfn_lint(templates),
            kubernetes_validate(list(self.manifests), [body.place for body in self.objects]),
            hadolint(self.dockerfiles),
        ]
        return [linter for linter in found if linter.files]

    def _add_file(self, path: Path, *, named: bool) -> None:
        resolved = Path(os.path.realpath(path))  # `resolve` raises on a loop of links
        if resolved in self._seen:
            return
        self._seen.add(resolved)
        text = self._read(path)
        if text is None:
            return
        self._texts[str(path)] = text
        if _is_dockerfile(path.name):
            self.dockerfiles.append(str(path))
            return
        documents = _documents(text, path)
        taken = [self._take(document, path) for document in documents]
        before = len(self._findings)
        for document, wanted in zip(documents, taken, strict=True):
            # What is wrong with a configuration file in a folder is for `meks validate` to say.
            if wanted or named or document.value is None:
                self._findings += document.findings
        if any(taken) or len(self._findings) > before:
            return
        if named:
            remedy = "name templates or manifests; `meks validate` checks cluster and job files"
            self._report(Code.NOTHING_TO_CHECK, path, "neither template nor manifest", remedy)
        else:
            self.unknown.append(str(path))

    def _take(self, document: Document, path: Path) -> bool:
        """Keep what the guards can judge, and tell whether there was anything."""
        if _too_deep(document.value):
            found, remedy = "nested too deeply to read", f"use at most {MAX_DEPTH} levels"
            document.findings = [Finding(Code.TOO_LARGE, (), found, remedy).at(str(path), 1)]
            document.value = None
        elif is_template(document.value):
            together = self.templates.setdefault(path.resolve().parent, {})
            together[document.file] = document
            return True
        elif is_manifest(document.value):
            self.manifests.setdefault(document.file, []).extend(bodies_in(document))
            return True
        return False

    def _read(self, path: Path) -> str | None:
        # Its writer may never come.
        if path.exists() and not path.is_file():
            self._report(Code.FILE_UNREADABLE, path, "a pipe or a device", "name a file")
            return None
        try:
            return path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            self._unreadable(error, "file", path)
        except UnicodeDecodeError:
            self._report(Code.FILE_UNREADABLE, path, "not a text in UTF-8", "write it as UTF-8")
        return None

    def _report(self, code: StrEnum, path: Path, found: str, remedy: str = "name others") -> None:
        self._findings.append(Finding(code, (), found, remedy).at(str(path), 1))

    def _unreadable(
        self, error: OSError, kind: str = "directory", path: Path | None = None
    ) -> None:
        reason = (error.strerror or type(error).__name__).lower()
        path = path or Path(str(error.filename))
        self._report(Code.FILE_UNREADABLE, path, reason, f"name a {kind} that can be read")


def _too_deep(value: Json) -> bool:
    """Tell whether a value is nested deeper than guards should follow it; JSON has no limit."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def _is_dockerfile(name: str) -> bool:
    return name == "Dockerfile" or name.startswith("Dockerfile.") or name.endswith(".Dockerfile")


def _documents(text: str, path: Path) -> list[Document]:
    suffix = path.suffix.lower()
    if suffix == ".json" or (suffix == ".template" and text.lstrip().startswith("{")):
        return [read_json(text, str(path))]
    return read_documents(text, str(path), scalar_1_1)
