"""Rule over the times at which a CronJob runs."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.values import is_placeholder, number, shown, text
from megatron_eks.rules.workloads import Manifest

_NAMED = re.compile(r"@(yearly|annually|monthly|weekly|daily|midnight|hourly|every [0-9hms.]+)")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# robfig/cron v3, parser.go, which the API server validates with.
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 6, _DAYS),
)
_OFTEN = 10
# No zone of the IANA database is written so, but those of Etc; Go's tz data has it alone.
_OFFSET = re.compile(r"(UTC|GMT|Z)?[+-][0-9]{1,2}(:?[0-9]{2})?", re.IGNORECASE)
_NO_OFFSET = frozenset({"GMT+0", "GMT-0"})
# IANA, Time Zone Database: the names without a place; Go reads no other abbreviation.
_OF_ONE_WORD = frozenset(
    {
        *("CET", "CST6CDT", "Cuba", "EET", "EST", "EST5EDT", "Egypt", "Eire", "Factory", "GB"),
        *("GB-Eire", "GMT+0", "GMT-0", "GMT0", "Greenwich", "HST", "Hongkong", "Iceland", "Iran"),
        *("Israel", "Jamaica", "Japan", "Kwajalein", "Libya", "MET", "MST", "MST7MDT", "NZ"),
        *("NZ-CHAT", "Navajo", "PRC", "PST8PDT", "Poland", "Portugal", "ROC", "ROK", "Singapore"),
        *("Turkey", "UCT", "W-SU", "WET"),
    }
)
_SPELLINGS = frozenset({"UTC", "GMT", "Zulu", "Universal"})


def schedules(manifest: Manifest) -> Iterator[Finding]:
    """Require five fields of a schedule, each in its bounds, and its zone in timeZone.

    Kubernetes, "CronJob", schedule syntax and "Time zones"; pkg/apis/batch/validation,
    validateTimeZone; a deadline below ten seconds never starts a run.
    """
    if (manifest.group, manifest.kind) != ("batch", "CronJob"):
        return
    written = text(manifest.spec.get("schedule"))
    problem = _problem(written) if written and not is_placeholder(written) else None
    if problem is not None:
        found, remedy = problem
        yield manifest.find(Code.CRON, ("spec", "schedule"), found, remedy)
    zone = text(manifest.spec.get("timeZone"))
    if zone is not None and not is_placeholder(zone) and _is_no_zone(zone):
        found = f"no time zone {shown(zone)}: the API server refuses it"
        remedy = "write a name of the IANA database, such as Etc/UTC or America/Los_Angeles"
        yield manifest.find(Code.CRON, ("spec", "timeZone"), found, remedy)
    seconds = number(manifest.spec.get("startingDeadlineSeconds"))
    if seconds is not None and seconds < _OFTEN:
        found = f"{seconds} seconds: the controller looks every ten, and starts no run"
        remedy = f"write {_OFTEN} or more"
        yield manifest.find(Code.CRON, ("spec", "startingDeadlineSeconds"), found, remedy)


def _is_no_zone(zone: str) -> bool:
    """Tell what is surely none: an offset, an abbreviation, another case, or a space."""
    offset = _OFFSET.fullmatch(zone) is not None and zone not in _NO_OFFSET
    case = zone not in _SPELLINGS and any(zone.lower() == each.lower() for each in _SPELLINGS)
    bare = "/" not in zone and zone not in {*_OF_ONE_WORD, *_SPELLINGS}
    return offset or case or bare or " " in zone or zone.startswith("/")


def _problem(written: str) -> tuple[str, str] | None:
    if "TZ=" in written:
        return f"{shown(written)} names a zone: the API server refuses it", "write spec.timeZone"
    if written.startswith("@"):
        known = _NAMED.fullmatch(written)
        remedy = "use @hourly, @daily, @weekly, @monthly or @yearly"
        return None if known else (f"{shown(written)} is no schedule", remedy)
    fields = written.split()
    if len(fields) != len(_FIELDS):
        found = f"{len(fields)} fields in {shown(written)}"
        return found, "write five: minute, hour, day of the month, month, day of the week"
    for field, (what, least, most, names) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if not _is_part(part.upper(), least, most, names):
                return f"{shown(part)} is no {what}", f"write * or {least} to {most}"
    return None


def _is_part(part: str, least: int, most: int, names: tuple[str, ...]) -> bool:
    values, _, step = part.partition("/")
    if "/" in part and not (step.isdigit() and int(step) > 0):
        return False
    if values in {"*", "?"}:
        return True
    numbers = [
        names.index(each) + least if each in names else int(each) if each.isdigit() else -1
        for each in values.split("-")
    ]
    bounds = (1, 2)
    inside = all(least <= each <= most for each in numbers)
    return len(numbers) in bounds and inside and numbers == sorted(numbers)
