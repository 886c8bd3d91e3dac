"""Python's tracebacks: where an exception was raised, and what a bare one asserted."""

import re
from collections.abc import Iterable
from functools import lru_cache

from megatron_eks.diagnosis.index import shape
from megatron_eks.diagnosis.lines import Line

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>\S+))?')
_LIBRARY = re.compile(r"(site|dist)-packages/|/lib(64)?/python3|^<frozen|^<string>|/bin/torchrun")
_NAMED = re.compile(r"^\s*(\w+\.)*[A-Z]\w*: \S")
_RAISED = re.compile(r"^\s*(\w+\.)*[A-Z]\w*(Error|Exception|Interrupt|Exit|Failed)(:|\s*$)")
_BARE = re.compile(r"^\s*(\w+\.)*AssertionError:?\s*$")
_SOURCE = re.compile(r"^(\s+)(?!assert\b)\S")
_UNTOLD = re.compile(r"^\s*(\w+\.)*[A-Z]\w*(Error|Exception): ?$|^\S*\w+Failed: .* raised:$")
_THROWN = re.compile(r"^\s*terminate called after throwing an instance of '[^']*'$")
_UNDERLINE = re.compile(r"^\s*[~^]+\s*$")
_KILLED = re.compile(r"^\s*Killed$")
_COMPLAINS = re.compile(
    r"\[?\b(ERROR|FATAL|CRITICAL|error|fatal|panic)\b\]?[:\s]|\bE\d{4} "
    r"|\b(NCCL WARN|CREATE_FAILED|UPDATE_FAILED|DELETE_FAILED)\b|Resource handler returned message"
    r"|^\s*(\S+\s+)?Warning\s+[A-Z]\w+\s"
)
_DOUBTS = re.compile(
    r"\b([Ff]ailed|[Ff]ailure|[Cc]annot|[Cc]an.t|([Cc]ould|[Dd]id|[Dd]oes) ?(not|n.t)|[Uu]nable to"
    r"|[Rr]efused|[Dd]enied|[Ii]nvalid|[Nn]ot found|[Mm]issing|[Nn]o such|[Aa]borted"
    r"|[Tt]imed out|[Ee]xceed(s|ed)|[Mm]ismatch)\b"
)
# Of what a program trains on; unlike other warnings, one of these is often all that it says.
_EMPTY = re.compile(
    r"((^|[^\d.,/])0|\b[Nn]o) (\w+ )?"
    r"(documents|samples|rows|records|sequences|batches|files)\b(?! (were|was) )"
    r"|\b([Dd]ataset|[Cc]orpus|[Ss]plit|[Ff]ile|[Ff]older|[Dd]irectory)\b.* is empty\b"
)
# An infinite norm is what scaled FP16 has now and then.
_NOT_FINITE = re.compile(
    r"\bloss\b[\"']?\s*[:=]\s*[\"']?-?(nan|inf)\b|\bgrad[_ ]norm'?: '?nan\b", re.IGNORECASE
)
_HARMLESS = re.compile(
    r"\b(no|0|without) errors?\b|\blast error:\s*$|error[_ ](file|rate)|InvalidDiskCapacity"
    r"|Unable to register \w+ factory|errors?: 0|Resource (creation|update|deletion) cancelled",
    re.IGNORECASE,
)
_INFORMED = re.compile(r"\b(INFO|DEBUG)\b|\bI\d{4} ")
_WARNED = re.compile(rf"{_INFORMED.pattern}|\w+Warning\b|\b(WARN|WARNING)\b|\bW\d{{4}} ")
_RANKS = 4096
_COMMAND = 200


class Places:
    """What each rank's traceback showed last."""

    def __init__(self) -> None:
        self._before: dict[object, str] = {}
        self._own: dict[object, str] = {}
        self._framed: dict[object, int] = {}
        self._bare: dict[object, Line] = {}
        self._thrown: Line | None = None
        self._ignored: set[object] = set()
        self.joined = False
        """Whether the text returned last began on a line before."""

    def completed(self, line: Line) -> str:
        """Return a line's text, with what only the line before it says; nothing for a source's."""
        text, key = line.text, (line.rank, line.pod)
        self.joined = False
        if len(self._before) > _RANKS:
            self._forget()
        if self._is_frame(text, key):
            return text
        if self._is_ignored(text, key):
            return ""
        before = self._before.get(key, "").strip()
        if not _UNDERLINE.match(text):
            self._before[key] = text[:300]
        if self._is_source(text, key):
            return ""
        bare = self._bare.pop(key, None)
        if self._thrown and text.lstrip().startswith("what():"):
            # It may name a rank, which the line before does not.
            bare, self._thrown = self._thrown, None
        self.joined = bare is not None
        if bare:
            text = f"{bare.text.strip()} {text.strip()}"
        elif _THROWN.match(text):
            self._thrown = line
            return ""
        elif _UNTOLD.match(text):
            self._bare[key] = line
            return ""
        return _with(before, text)

    def raised(self, line: Line, text: str) -> bool:
        """Say whether a line ends a traceback, by whatever name its exception has."""
        return bool((line.rank, line.pod) in self._own and _NAMED.match(text))

    def _is_source(self, text: str, key: object) -> bool:
        """Say whether a line stands below a frame, indented more than it."""
        indent = self._framed.get(key)
        source = _SOURCE.match(text) if indent is not None else None
        if indent is not None and source and len(source[1]) > indent:
            return True
        self._framed.pop(key, None)
        return False

    def _forget(self) -> None:
        for kept in (self._before, self._own, self._framed, self._bare, self._ignored):
            kept.clear()

    def _is_ignored(self, text: str, key: object) -> bool:
        """Say whether Python threw the exception away, as it does at the end of a process."""
        if text.startswith("Exception ignored in"):
            self._ignored.add(key)
        elif key not in self._ignored:
            return False
        elif not text.startswith((" ", "Traceback")):
            self._ignored.discard(key)
        return True

    def _is_frame(self, text: str, key: object) -> bool:
        if found := _FRAME.match(text):
            self._framed[key] = len(text) - len(text.lstrip())
            if not _LIBRARY.search(found["file"]):
                file = found["file"].rpartition("/")[2]
                self._own[key] = f"{file} line {found['line']}"
        elif text.startswith("Traceback (most recent"):
            self._own.pop(key, None)
        return bool(found)

    def untold(self) -> Iterable[Line]:
        """Return the errors that end with a colon, and with the log."""
        return [*self._bare.values(), *([self._thrown] if self._thrown else [])]

    def of(self, line: Line, text: str) -> str:
        """Return the place in the program from which an exception came, or nothing."""
        if not _RAISED.match(text):
            return ""
        place = self._own.pop((line.rank, line.pod), "")
        return f" ({place})" if place else ""


def _with(before: str, text: str) -> str:
    """Add the line before to one that says nothing without it."""
    if before.startswith("assert") and _BARE.match(text):
        return f"{text.strip().rstrip(':')}: {before}"
    if before and _KILLED.match(text):
        return f"{before[:_COMMAND]}: Killed"
    return text


def is_not_finite(text: str) -> bool:
    """Say whether a step's line gives a loss that is no number."""
    return bool(_NOT_FINITE.search(text))


@lru_cache(maxsize=256)
def _fits(pattern: "re.Pattern[str]", alike: str) -> bool:
    return bool(pattern.search(alike))


def complains(text: str) -> bool:
    """Say whether a line calls itself an error."""
    return _fits(_COMPLAINS, shape(text)) and not _HARMLESS.search(text)


def doubts(text: str) -> bool:
    """Say whether a line tells of something that did not go well, though of no error."""
    alike = shape(text)
    if _fits(_EMPTY, alike) and _EMPTY.search(text):
        return not _INFORMED.search(text)
    return _fits(_DOUBTS, alike) and not (_HARMLESS.search(text) or _WARNED.search(text))
