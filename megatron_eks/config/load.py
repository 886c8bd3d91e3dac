"""The one YAML and JSON reader: YAML 1.2 scalars, and the line of every value."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import yaml

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path
from megatron_eks.config.scalars import scalar
from megatron_eks.config.syntax import mistake

if TYPE_CHECKING:
    from megatron_eks.config.allowances import Allowance

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

# PyYAML's own types of its events know neither their marks nor their values.
_Event: TypeAlias = Any

MAX_NODES = 2_000_000
"""A file that expands to more values than this is refused (YAML alias bombs)."""
MAX_DEPTH = 100

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# YAML's own tags (yaml.org/spec/1.2.2, section 10), written !!str and so on.
_YAML_TAGS = "tag:yaml.org,2002:"
_STRING = f"{_YAML_TAGS}str"
_KNOWN_TAGS = {f"{_YAML_TAGS}{name}" for name in ("bool", "float", "int", "map", "null", "seq")}
_KINDS_OF_VALUES = {type(None): "an empty file", list: "a list"}
_LONG_FORM = {"!Ref": "Ref", "!Condition": "Condition"}


COMMAND_LINE = "command line"
"""Where a value stands that is in no file."""


class Place(NamedTuple):
    """Where a value stands, and how it was written."""

    line: int
    """0 where it is in no file."""
    raw: str | None = None
    """The text of a plain (unquoted) scalar."""


@dataclass
class Document:
    """One YAML or JSON document, with the place of everything in it."""

    file: str
    value: Json = None
    places: dict[Path, Place] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    allowances: "list[Allowance[tuple[str, int]]]" = field(default_factory=list)
    """What its comments allow, where somebody read them."""

    def line(self, path: Path) -> int:
        """Return the line of a path, or of its nearest existing parent."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places[path].line if path in self.places else 1

    def locate(self, findings: Iterable[Finding]) -> Findings:
        """Put file and line on findings about this document."""
        for finding in findings:
            line = self.line(finding.path)
            yield finding.at(self.file if line else COMMAND_LINE, line)


def read_documents(
    text: str, file: str, resolve: Callable[[str], Json] | None = None
) -> list[Document]:
    """Parse every document of a text; what is wrong becomes findings, never an exception.

    `resolve` says what a plain scalar means; otherwise YAML 1.2 does.
    """
    try:
        events = yaml.parse(text, _LOADER)
        starts = (each for each in events if isinstance(each, yaml.DocumentStartEvent))
        return [_Reader(events, file, resolve or scalar).document() for _ in starts]
    except yaml.YAMLError as error:
        line, cause, remedy = mistake(text, error)
        broken = Finding(Code.YAML_SYNTAX, (), f"not valid YAML: {cause}", remedy).at(file, line)
    except _TooLargeError as error:
        remedy = "split the file, or write repeated parts out"
        broken = Finding(Code.TOO_LARGE, (), str(error), remedy).at(file, 1)
    return [Document(file, findings=[broken])]


def read_mapping(text: str, file: str) -> Document:
    """Parse a text that must hold exactly one mapping, as configuration files do."""
    documents = read_documents(text, file)
    if len(documents) > 1:
        found, remedy = f"{len(documents)} YAML documents", "keep one in a file"
        extra = Finding(Code.NOT_A_MAPPING, (), found, remedy).at(file, documents[1].line(()))
        return Document(file, findings=[extra])
    document = documents[0] if documents else Document(file)
    if not document.findings and not isinstance(document.value, dict):
        remedy = "write `key: value` lines, as in the examples"
        found = _KINDS_OF_VALUES.get(type(document.value), "one word or number, and no key")
        document.findings.append(Finding(Code.NOT_A_MAPPING, (), found, remedy).at(file, 1))
    return document


def read_json(text: str, file: str) -> Document:
    """Parse JSON fast, without places: for templates, whose places are needed only for findings."""
    try:
        return Document(file, value=json.loads(text))
    except (ValueError, RecursionError):
        documents = read_documents(text, file)
        return documents[0] if documents else Document(file)


class _TooLargeError(Exception):
    """The document expands beyond what a person would write."""


class _Reader:
    """Turns one document's events into plain JSON values, and remembers where each one stood."""

    def __init__(self, events: Iterator[_Event], file: str, resolve: Callable[[str], Json]) -> None:
        self._next = events.__next__
        self._resolve = resolve
        self._document = Document(file)
        self._places = self._document.places
        self._anchors: dict[str, tuple[Json, int]] = {}
        """Values, and how many each of them is made of."""
        self._count = 0

    def document(self) -> Document:
        """Read from behind the document's start to its end."""
        self._document.value = self._value(self._next(), ())
        self._next()
        return self._document

    def _value(self, event: _Event, path: Path, line: int | None = None) -> Json:
        """Read a value; its line is that of its key, which is what a person looks for."""
        line = line or event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path, line)
        before = self._count
        self._grow(1)
        if len(path) > MAX_DEPTH:
            raise _TooLargeError(f"more than {MAX_DEPTH} levels")
        plain = isinstance(event, yaml.ScalarEvent) and not event.style
        self._places.setdefault(path, Place(line, event.value if plain else None))
        value: Json
        if isinstance(event, yaml.ScalarEvent):
            value = self._resolve(event.value) if plain else str(event.value)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(entry := self._next(), yaml.SequenceEndEvent):
                value.append(self._value(entry, (*path, len(value))))
        else:
            value = self._mapping(path)
        value = self._tagged(event, value, path)
        if event.anchor:
            self._anchors[event.anchor] = (value, self._count - before)
        return value

    def _tagged(self, event: _Event, value: Json, path: Path) -> Json:
        """Apply YAML's own tags, write CloudFormation's (`!Sub x`) long, refuse all others."""
        tag = event.tag or ""
        if tag == _STRING:
            return str(event.value) if isinstance(event, yaml.ScalarEvent) else value
        if tag.startswith(_YAML_TAGS) and tag not in _KNOWN_TAGS:
            found = f"the tag {tag.replace(_YAML_TAGS, '!!')} makes no plain value"
            line = event.start_mark.line + 1
            self._refuse(line, path, Code.YAML_SYNTAX, found, "remove it")
        if not tag.startswith("!") or tag == "!":
            return value
        parts: Json = value
        if tag == "!GetAtt" and isinstance(value, str):
            parts = list(value.split(".", 1))
        return {_LONG_FORM.get(tag, f"Fn::{tag[1:]}"): parts}

    def _mapping(self, path: Path) -> Json:
        result: dict[str, Json] = {}
        merged: dict[str, Json] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key, place = self._key(event, path)
            value_event = self._next()
            if key is None:
                self._value(value_event, (*path, "?"))
            elif key == "<<" and not getattr(event, "style", None):
                source = self._value(value_event, path)
                sources = source if isinstance(source, list) else [source]
                if not all(isinstance(each, dict) for each in sources):
                    found, remedy = "'<<' merges a value that is no mapping", "use <<: *NAME"
                    self._refuse(place, path, Code.YAML_SYNTAX, found, remedy)
                for each in reversed(sources):  # the first one wins
                    merged |= each if isinstance(each, dict) else {}
            elif key in result:
                found = f"{key!r} is given twice, first on line {self._document.line((*path, key))}"
                self._refuse(place, (*path, key), Code.DUPLICATE_KEY, found, "keep one of the two")
                self._value(value_event, (*path, "?"))
            else:
                result[key] = self._value(value_event, (*path, key), place)
        return merged | result

    def _key(self, event: _Event, path: Path) -> tuple[str | None, int]:
        """Return a key and its line; None for a key that JSON cannot hold."""
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            if event.anchor:
                self._anchors[event.anchor] = (event.value, 1)
            return str(event.value), line
        key = self._value(event, (*path, "?"))
        if isinstance(key, str):
            return key, line
        # To YAML `{{ name }}` is a mapping whose key is a mapping.
        nested = isinstance(event, yaml.MappingStartEvent) and event.flow_style
        found = "a key that is no text" + (", as in {{ name }}" if nested else "")
        remedy = "fill in the template first, or put it in quotes" if nested else "name the key"
        self._refuse(line, path, Code.YAML_SYNTAX, found, remedy)
        return None, line

    def _alias(self, event: _Event, path: Path, line: int) -> Json:
        self._places.setdefault(path, Place(line))
        if event.anchor not in self._anchors:
            found = f"alias *{event.anchor} names no complete value above it"
            here, remedy = event.start_mark.line + 1, f"define &{event.anchor} first"
            self._refuse(here, path, Code.YAML_SYNTAX, found, remedy)
            return None
        value, count = self._anchors[event.anchor]
        self._grow(count)
        return value

    def _grow(self, count: int) -> None:
        """Count what a value expands to: aliases of aliases grow without bound."""
        self._count += count
        if self._count > MAX_NODES:
            raise _TooLargeError(f"more than {MAX_NODES} values")

    def _refuse(self, line: int, path: Path, code: Code, found: str, remedy: str) -> None:
        finding = Finding(code, path, found, remedy)
        self._document.findings.append(finding.at(self._document.file, line))
