"""`meks check`: applies the rules to templates and manifests on disk."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from megatron_eks.config.allowances import Allowance, apply, in_comments
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, has_errors
from megatron_eks.config.errors import Path as ConfigPath
from megatron_eks.config.load import (
    MAX_DEPTH,
    Document,
    Json,
    read_documents,
    read_json,
)
from megatron_eks.config.scalars import scalar_1_1
from megatron_eks.ops.contexts import files_beside
from megatron_eks.ops.kustomized import absent_files, named_kind
from megatron_eks.ops.output import count, counted, structured
from megatron_eks.rules.dockerfiles import (
    findings_in_dockerfile,
    instructions,
    is_dockerfile,
)
from megatron_eks.rules.manifests import elements, findings_in_manifests, is_manifest
from megatron_eks.rules.objects.node_pools import node_pools
from megatron_eks.rules.platform.json_patches import is_patch, of_file
from megatron_eks.rules.policies import subjects
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.templates import findings_in_templates, is_template

_SUFFIXES = frozenset({".json", ".template", ".yaml", ".yml"})
_SKIPPED = frozenset({"node_modules"})
_COMMENT = re.compile(r"(?m)^\s*(//|/\*)")
_MARK = re.compile(r'"(apiVersion|AWSTemplateFormatVersion|Resources)"')
_RENDERED_BY_HELM = frozenset({"files", "templates"})
# What envsubst, Terraform, Jinja and Helm replace; a text with such marks need not be YAML yet.
_ENGINE = re.compile(r"\{\{|[%$]\{|\{%|%[A-Z_]+%")
_MAX_BYTES = 64 * 1024**2

_DONE, _REFUSED = 0, 2


def run(paths: Sequence[Path], output: str, stdout: TextIO) -> int:
    """Check files and directories, print what is found, and return the exit code."""
    checked = Checked()
    for path in paths:
        checked.add(path)
    findings = sorted(checked.findings(), key=_order)
    if output == "table":
        stdout.writelines(f"{finding}\n" for finding in findings)
    else:
        stdout.write(structured([dict(finding.as_json()) for finding in findings], output))
    sys.stderr.write(f"checked {checked.counted()}: {counted(findings)}\n")
    return _REFUSED if has_errors(findings) else _DONE


def _order(
    finding: Finding,
) -> tuple[int, str, int, str, tuple[tuple[int, str], ...]]:
    # The tenth element of a list comes after the second.
    place = tuple((part, "") if isinstance(part, int) else (-1, part) for part in finding.path)
    return ([*Level].index(finding.level), finding.file, finding.line, finding.code, place)


@dataclass
class Checked:
    """Files read so far, by what they hold; each file once, however often it is named."""

    templates: int = 0
    objects: int = 0
    dockerfiles: list[str] = field(default_factory=list)
    _seen: dict[Path, bool] = field(default_factory=dict)
    """Files, and whether there was anything to judge or to complain about."""
    _texts: dict[str, str] = field(default_factory=dict)
    _templates: dict[Path, list[Document]] = field(default_factory=dict)
    """By directory: those of one directory are deployed together."""
    _manifests: list[Document] = field(default_factory=list)
    _findings: list[Finding] = field(default_factory=list)
    _patches: list[Document] = field(default_factory=list)

    def counted(self) -> str:
        """Say how much was judged."""
        parts = [count(self.templates, "template"), count(self.objects, "object")]
        images = [count(len(self.dockerfiles), "Dockerfile")] if self.dockerfiles else []
        return " and ".join([", ".join(parts), *images] if images else parts)

    def add(self, path: Path) -> None:
        """Read a file, or every YAML and JSON file below a directory."""
        if not path.is_dir():
            self._add_file(path, named=True)
            return
        before = len(self._findings)
        found = False
        for folder, names, files in os.walk(path, onerror=self._add_unreadable):
            # A chart's templates become manifests only when Helm has rendered them.
            skipped = _SKIPPED | (_RENDERED_BY_HELM if "Chart.yaml" in files else set())
            names[:] = sorted(name for name in names if name not in skipped and name[0] != ".")
            for name in sorted(files):
                file = Path(folder, name)
                wanted = file.suffix.lower() in _SUFFIXES or is_dockerfile(name)
                # Hidden files, as hidden folders, are those of other programs.
                if wanted and name[0] != "." and file.is_file():
                    found = self._add_file(file, named=False) or found
        if not found and len(self._findings) == before:
            self._report(Code.NOTHING_TO_CHECK, path, "no template and no manifest in it")

    def findings(self) -> Iterator[Finding]:
        """Judge everything that was read."""
        yield from self._findings
        found: list[Finding] = []
        for templates in self._templates.values():
            found += findings_in_templates(templates, self._texts.__getitem__)
        values = {each.file: each.value for every in self._templates.values() for each in every}
        beside = TemplateSet(values if self._manifests else {})
        pools, roles = node_pools(beside), subjects(beside)
        absent = absent_files(self._manifests)
        found += findings_in_manifests(
            self._manifests, self._texts.__getitem__, pools, absent, roles
        )
        for patch in self._patches:
            found += of_file(patch)
        for file in self.dockerfiles:
            text = self._texts[file]
            found += findings_in_dockerfile(text, file, files_beside(text, Path(file)))
        placed = [((finding.file, finding.line), finding) for finding in found]
        inside: dict[str, list[Document]] = {}
        for document in self._documents():
            inside.setdefault(document.file, []).append(document)
        for _, finding in apply(placed, self._allowances()):
            documents = self._placed(finding.file, inside)
            yield finding.at(finding.file, _line(finding, documents))

    def _placed(self, file: str, inside: dict[str, list[Document]]) -> Sequence[Document]:
        """Return a file's documents with the lines of what is in them; JSON is read again."""
        listed = inside.get(file, [])
        if any(is_template(each.value) and not each.places for each in listed):
            again = read_documents(self._texts[file], file)
            listed = inside[file] = again if len(again) == len(listed) else listed
        return listed

    def _documents(self) -> Iterator[Document]:
        for listed in self._templates.values():
            yield from listed
        yield from self._manifests

    def _allowances(self) -> Iterator[Allowance[tuple[str, int]]]:
        """Return what comments allow; only a file that names the project is looked through."""
        starts: dict[str, set[int]] = {}
        for document in self._documents():
            if "meks:" in self._texts[document.file]:
                starts.setdefault(document.file, set()).update(_starts(document))
        for file in self.dockerfiles:
            starts[file] = {each.line for each in instructions(self._texts[file])}
        for file, lines in starts.items():
            yield from in_comments(self._texts[file], file, sorted(lines))

    def _add_file(self, path: Path, *, named: bool) -> bool:
        """Read a file once, and tell whether there was anything to judge or to complain about."""
        resolved = Path(os.path.realpath(path))  # `resolve` raises on a loop of links
        if resolved not in self._seen:
            text = self._read(path)
            self._seen[resolved] = text is None or self._add_text(text, path, named=named)
        return self._seen[resolved]

    def _add_text(self, text: str, path: Path, *, named: bool) -> bool:
        self._texts[str(path)] = text
        if is_dockerfile(path.name):
            self.dockerfiles.append(str(path))
            return True
        documents = [named_kind(each, path) for each in _documents(text, path)]
        broken = any(document.findings and document.value is None for document in documents)
        if broken and not named and _is_for_an_engine(text, path):
            return False
        found = False
        for document in documents:
            relevant = self._take(document, path)
            # What is wrong with a file that is no template and no manifest is nobody's business
            # here, unless it cannot be read at all.
            if relevant or named or document.value is None:
                self._findings += document.findings
            found = found or relevant or bool(document.findings)
        if named and not found:
            remedy = "name templates or manifests; `meks validate` checks cluster and job files"
            self._report(Code.NOTHING_TO_CHECK, path, "neither template nor manifest", remedy)
        return found

    def _take(self, document: Document, path: Path) -> bool:
        """Keep what the rules can judge, and tell whether there was anything."""
        template, manifest = is_template(document.value), is_manifest(document.value)
        if (template or manifest) and _too_deep(document.value):
            found, remedy = "nested too deeply to read", f"use at most {MAX_DEPTH} levels"
            self._report(Code.TOO_LARGE, path, found, remedy)
        elif template:
            self._templates.setdefault(path.resolve().parent, []).append(document)
            self.templates += 1
        elif manifest:
            self._manifests.append(document)
            self.objects += 1
        elif is_patch(document.value):
            self._patches.append(document)
            return True
        return template or manifest

    def _read(self, path: Path) -> str | None:
        try:
            size = path.stat().st_size
            content = path.read_bytes() if size <= _MAX_BYTES else b""
        except OSError as error:
            reason = (error.strerror or type(error).__name__).lower()
            self._report(Code.FILE_UNREADABLE, path, reason, "name a file that can be read")
            return None
        if size > _MAX_BYTES:
            found = f"{size} bytes"
            self._report(Code.TOO_LARGE, path, found, f"split it: at most {_MAX_BYTES} bytes")
            return None
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            self._report(Code.FILE_UNREADABLE, path, "not a text in UTF-8", "write it as UTF-8")
            return None

    def _report(self, code: Code, path: Path, found: str, remedy: str = "name others") -> None:
        self._findings.append(Finding(code, (), found, remedy).at(str(path), 1))

    def _add_unreadable(self, error: OSError) -> None:
        reason = (error.strerror or type(error).__name__).lower()
        path = Path(str(error.filename))
        self._report(Code.FILE_UNREADABLE, path, reason, "name a directory that can be read")


def _starts(document: Document) -> Iterator[int]:
    """Return the lines on which the objects or resources of a document start."""
    if is_template(document.value):
        resources = document.value.get("Resources") if isinstance(document.value, dict) else None
        for name in resources if isinstance(resources, dict) else ():
            yield document.line(("Resources", name))
    else:
        for path, _ in elements(document.value):
            yield document.line(path)


def _line(finding: Finding, documents: Sequence[Document]) -> int:
    """Return the line of what a finding is about; an object's first one if it is not there."""
    for document in documents:
        # JSON is read without places.
        if document.places and is_template(document.value):
            named, inside = finding.path[:2], finding.path[2:]
            return _nearest(document, named, ("Properties", *inside), inside)
        for start, _ in elements(document.value) if document.places else ():
            if document.line(start) == finding.line:
                # The first part is the object's title.
                return _nearest(document, start, finding.path[1:])
    return finding.line


def _nearest(document: Document, start: ConfigPath, *ways: ConfigPath) -> int:
    """Return the line of the first of some ways that leads on from a start, as far as it does."""
    for way in ways:
        for length in range(len(way), 0, -1):
            place = document.places.get((*start, *way[:length]))
            if place and way[:length] != ("Properties",):
                return place.line
    return document.line(start)


def _documents(text: str, path: Path) -> list[Document]:
    suffix = path.suffix.lower()
    if suffix == ".json" or (suffix == ".template" and text.lstrip().startswith("{")):
        return [read_json(text, str(path))]
    return read_documents(text, str(path), scalar_1_1)


def _is_for_an_engine(text: str, path: Path) -> bool:
    """Recognise text for some template engine: what comes out of it can be checked, not this.

    Nor are lines of JSON a manifest, which are data, or JSON with comments, which editors read.
    """
    if path.suffix.lower() == ".json":
        first, _, rest = text.strip().partition("\n")
        lines = first.startswith("{") and first.endswith("}") and rest.startswith("{")
        if lines or (_COMMENT.search(text) and not _MARK.search(text)):
            return True
    return _ENGINE.search(text) is not None or (
        path.suffix.lower() == ".template" and "AWS::" not in text
    )


def _too_deep(value: Json) -> bool:
    """Tell whether a value is nested deeper than rules should follow it; JSON has no limit."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True
