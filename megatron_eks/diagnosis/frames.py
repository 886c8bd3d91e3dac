"""Python's tracebacks: where an exception was raised, and what a bare one asserted."""

import re

from megatron_eks.diagnosis.lines import Line

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<name>\S+))?')
_LIBRARY = re.compile(r"(site|dist)-packages/|/lib(64)?/python3|^<frozen|^<string>|/bin/torchrun")
_RAISED = re.compile(r"^\s*(\w+\.)*[A-Z]\w*(Error|Exception|Interrupt|Exit|Failed)(:|\s*$)")
_BARE = re.compile(r"^\s*(\w+\.)*AssertionError:?\s*$")
_COMPLAINS = re.compile(
    r"\[?\b(ERROR|FATAL|CRITICAL|error|fatal|panic)\b\]?[:\s]|\bE\d{4} "
    r"|\b(NCCL WARN|CREATE_FAILED)\b"
    r"|^\s*(\S+\s+)?Warning\s+[A-Z]\w+\s"
)
_NOT_FINITE = re.compile(r"\bloss\b[\"']?\s*[:=]\s*[\"']?-?(nan|inf)\b", re.IGNORECASE)
_HARMLESS = re.compile(
    r"\b(no|0|without) errors?\b|error_(file|rate)|InvalidDiskCapacity"
    r"|Unable to register \w+ factory|errors?: 0",
    re.IGNORECASE,
)
_RANKS = 4096


class Places:
    """What each rank's traceback showed last."""

    def __init__(self) -> None:
        self._before: dict[object, str] = {}
        self._own: dict[object, str] = {}

    def completed(self, line: Line) -> str:
        """Return a line's text, with what only the line before it says."""
        text, key = line.text, (line.rank, line.pod)
        if len(self._before) > _RANKS:
            self._before.clear()
            self._own.clear()
        if found := _FRAME.match(text):
            if not _LIBRARY.search(found["file"]):
                file = found["file"].rpartition("/")[2]
                self._own[key] = f"{file} line {found['line']}"
            return text
        if text.startswith("Traceback (most recent"):
            self._own.pop(key, None)
        before = self._before.get(key, "").strip()
        self._before[key] = text[:300]
        if before.startswith("assert") and _BARE.match(text):
            return f"{text.strip().rstrip(':')}: {before}"
        return text

    def of(self, line: Line, text: str) -> str:
        """Return the place in the program from which an exception came, or nothing."""
        if not _RAISED.match(text):
            return ""
        place = self._own.pop((line.rank, line.pod), "")
        return f" ({place})" if place else ""


def is_not_finite(text: str) -> bool:
    """Say whether a step's line gives a loss that is no number."""
    return bool(_NOT_FINITE.search(text))


def complains(text: str) -> bool:
    """Say whether a line calls itself an error."""
    return bool(_COMPLAINS.search(text)) and not _HARMLESS.search(text)
