"""The one YAML and JSON reader: YAML 1.2 scalars, and the line of every value."""

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from megatron_eks.config.errors import Code, Finding, Path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

MAX_NODES = 2_000_000
"""A file that expands to more values than this is refused (YAML alias bombs)."""
MAX_DEPTH = 100

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# YAML 1.2 core schema (yaml.org/spec/1.2.2, section 10.3.2): `yes` and `1:30` are strings and
# 1e-5 is a number, unlike in YAML 1.1, which PyYAML resolves by default.
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LONG_FORM = {"!Ref": "Ref", "!Condition": "Condition"}


@dataclass(frozen=True)
class Place:
    """Where a value stands, and how it was written."""

    line: int
    raw: str | None = None
    """The text of a plain (unquoted) scalar."""


@dataclass
class Document:
    """One YAML or JSON document, with the place of everything in it."""

    file: str
    value: Json = None
    places: dict[Path, Place] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of a path, or of its nearest existing parent."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places[path].line if path in self.places else 1

    def locate(self, findings: "Iterable[Finding]") -> "Iterator[Finding]":
        """Put file and line on findings about this document."""
        for finding in findings:
            yield finding.at(self.file, self.line(finding.path))


def read_documents(text: str, file: str) -> list[Document]:
    """Parse every document of a text; what is wrong becomes findings, never an exception."""
    documents: list[Document] = []
    try:
        loader = _LOADER(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                assert node is not None  # noqa: S101 -- check_node said so
                documents.append(_convert(node, file))
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        broken = Finding(
            Code.YAML_SYNTAX, (), f"not valid YAML: {problem}", "correct the syntax at this line"
        )
        return [Document(file, findings=[broken.at(file, line)])]
    except RecursionError:
        broken = Finding(
            Code.TOO_LARGE, (), "nested too deeply to read", f"use at most {MAX_DEPTH} levels"
        )
        return [Document(file, findings=[broken.at(file, 1)])]
    return documents


def read_mapping(text: str, file: str) -> Document:
    """Parse a text that must hold exactly one mapping, as configuration files do."""
    documents = read_documents(text, file)
    if len(documents) > 1:
        extra = Finding(
            Code.NOT_A_MAPPING, (), f"{len(documents)} YAML documents", "keep one in a file"
        )
        return Document(file, findings=[extra.at(file, documents[1].line(()))])
    document = documents[0] if documents else Document(file)
    if not document.findings and not isinstance(document.value, dict):
        found = "an empty file" if document.value is None else f"a {type(document.value).__name__}"
        wrong = Finding(
            Code.NOT_A_MAPPING, (), found, "write `key: value` lines, as in the examples"
        )
        document.findings.append(wrong.at(file, 1))
    return document


def read_json(text: str, file: str) -> Document:
    """Parse JSON fast, without places: for templates, whose places are needed only for findings."""
    try:
        return Document(file, value=json.loads(text))
    except (ValueError, RecursionError):
        documents = read_documents(text, file)
        return documents[0] if documents else Document(file)


def _convert(root: yaml.Node, file: str) -> Document:
    document = Document(file)
    converter = _Converter(document)
    try:
        document.value = converter.value(root, ())
    except _TooLargeError as error:
        document.findings.append(
            Finding(
                Code.TOO_LARGE, (), str(error), "split the file, or write repeated parts out"
            ).at(file, 1)
        )
    return document


class _TooLargeError(Exception):
    """The document expands beyond what a person would write."""


class _Converter:
    """Turns YAML nodes into plain JSON values and remembers where each one stood."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._budget = MAX_NODES

    def value(self, node: yaml.Node, path: Path) -> Json:
        self._budget -= 1
        if self._budget < 0:
            raise _TooLargeError(f"more than {MAX_NODES} values")
        if len(path) > MAX_DEPTH:
            raise _TooLargeError(f"more than {MAX_DEPTH} levels")
        plain = isinstance(node, yaml.ScalarNode) and not node.style
        self._document.places.setdefault(
            path, Place(node.start_mark.line + 1, node.value if plain else None)
        )
        converted = self._untagged(node, path)
        return self._intrinsic(node, converted)

    def _untagged(self, node: yaml.Node, path: Path) -> Json:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        plain = isinstance(node, yaml.ScalarNode) and not node.style
        return scalar(node.value) if plain else str(node.value)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Json:
        result: dict[str, Json] = {}
        merged: dict[str, Json] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(
                    key_node, path, Code.YAML_SYNTAX, "a key that is no text", "name the key"
                )
                continue
            key = str(key_node.value)
            if key == "<<" and not key_node.style:
                merged |= self._merge(value_node, path)
                continue
            if key in result:
                first = self._document.line((*path, key))
                found = f"{key!r} is given twice, first on line {first}"
                self._refuse(
                    key_node, (*path, key), Code.DUPLICATE_KEY, found, "keep one of the two"
                )
                continue
            # The key's line is what a person looks for, also where the value starts below it.
            raw = (
                value_node.value
                if isinstance(value_node, yaml.ScalarNode) and not value_node.style
                else None
            )
            self._document.places[*path, key] = Place(key_node.start_mark.line + 1, raw)
            result[key] = self.value(value_node, (*path, key))
        return merged | result

    def _refuse(self, node: yaml.Node, path: Path, code: Code, found: str, remedy: str) -> None:
        finding = Finding(code, path, found, remedy)
        self._document.findings.append(finding.at(self._document.file, node.start_mark.line + 1))

    def _merge(self, node: yaml.Node, path: Path) -> dict[str, Json]:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Json] = {}
        for source in reversed(sources):
            value = self.value(source, path)
            if isinstance(value, dict):
                merged |= value
        return merged

    @staticmethod
    def _intrinsic(node: yaml.Node, value: Json) -> Json:
        """Write CloudFormation's short forms (`!Sub x`) as their long ones."""
        tag = str(node.tag)
        if not tag.startswith("!") or tag == "!":
            return value
        name = _LONG_FORM.get(tag, f"Fn::{tag[1:]}")
        if tag == "!GetAtt" and isinstance(value, str):
            return {name: list(value.split(".", 1))}
        return {name: value}


def scalar(text: str) -> Json:
    """Resolve a plain scalar by YAML 1.2's core schema."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        # Python refuses to parse integers of more than 4300 digits; no field here takes one.
        return int(text, base) if len(text) < MAX_DEPTH else text
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text
