"""Lines of logs of many ranks: what stands around one, which rank wrote it, and when."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime

Moment = float
"""Seconds since a day long ago; the year is left out, for not all writers give it."""

LONGEST = 4000
"""Characters of a line that are read: progress bars and dumps write lines of megabytes."""
_RECORD = 1_000_000
_NESTED = 3
_MESSAGE = ("log", "message", "msg", "@message", "textPayload", "MESSAGE", "body")
_TIME = ("time", "timestamp", "@timestamp", "ts", "ingestionTime")
_YEAR = 2024  # a leap year: every day of any year is one of it
_DAY = 86400
_SECONDS, _MILLISECONDS = 10, 13
"""Digits of a time since 1970."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_STAMP = r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d+)?\s?(?:Z|[+-]\d\d:?\d\d\b)?"
_PREFIX = re.compile(
    # kubectl's [pod/NAME/CONTAINER], and a pod's name as other readers of logs write it
    r"\s*\[pod/(?P<path>[\w.-]+)(?:/[\w.-]+)?\]:?\s?"
    r"|(?P<name>[a-z0-9][a-z0-9.-]*-(?:worker|master|launcher|node|trainer)-\d+(?:-\d+)*)"
    r"(?: [a-z][a-z-]*| ?\|)?:?\s(?!\[\d+\] )"
    # `meks logs`; torchrun's tee (with any role); torch's own; slurm's labels; MPI's
    r"|\[\s*(?P<pod>\d+)\]\s"
    r"|\s*\[(?:default|trainer|worker|node)?(?P<tee>\d+)\]:?\s?"
    r"|\s*\[rank(?P<torch>\d+)\]:\s?"
    r"|(?P<label>\d{1,5}): (?=\S)"
    r"|\[(?!\S+\.(?:py|cpp|cc|cu|h|hpp|go|rs):)[\w.-]+:(?P<task>\d+)\]:?\s?"
    r"|\[\d+,(?P<mpi>\d+)\]<std(?:out|err)>:\s?"
    r"|\([\w.():-]+(?:\[rank=(?P<actor>\d+)\])?,? (?:pid=\d+|rank=(?P<ray>\d+))[^)]*\)\s?"
    # hosts, as pdsh writes them; SageMaker's; Docker's build steps
    r"|(?P<host>(?:worker|node|master|launcher|algo|ip|gpu|trainer)-\d[\w-]{0,40}): (?=\S|\s)"
    r"|\[\d+,mpirank:(?P<mpirank>\d+),[\w-]+\]<std(?:out|err)>:\s?"
    r"|[\w.]+ - (?:INFO|ERROR|WARNING|DEBUG|CRITICAL) - (?=\[rank)"
    r"|#\d+ (?:\d+\.\d+ )?(?=\s*\S)"
    r"|# [\w./-]+/\d+ (?=\[)"
    # times: docker, the kubelet, containerd's own form, syslog, the kernel's ring
    rf"|\s*\[?{_STAMP}\]?(?:\s+(?:stdout|stderr) [FP])?[\s:]\s*(?:[-|] )?"
    r"|(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) [\w.-]+ "
    r"(?=kernel|kubelet|containerd|nvidia)"
    r"|(?:kernel: ?|(?:user|kern)\s*:\w+\s*: )"
    r"|\[\s*\d+\.\d{6}\]\s"
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]\s"
)
_REPEATED = re.compile(r"\s*\[repeated \d+x across (cluster|all nodes)\].*$")
_WITH_ZONE = re.compile(
    r"\b\d{4}[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d(?:[.,]\d+)?)\s?(Z|[+-]\d\d:?\d\d\b)?"
)
_GLOG = re.compile(r"\b[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d(?:\.\d+)?)")
_SYSLOG = re.compile(r"\b([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?: \d{4}\])?")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


_RANK_IN_TEXT = re.compile(r"\b[Rr]ank[ :]?\s?(\d+)[\]:,]|\brank\s*[:=]\s*(\d+)\b")
_RANKS = ("torch", "tee", "mpi", "mpirank", "actor", "ray", "task", "label", "pod")
"""Of the groups of _PREFIX; the first that is there holds, for others only count processes."""
_PROGRESS = re.compile(
    r"\biteration\s+(\d+)/\s*\d+"
    r"|[\"']?\b(?:global_)?step[\"']?\s*[:=]?\s*(\d+)\b(?=.*\bloss\b)"
)
# transformers, trainer_callback.py: the dictionary of PrinterCallback has no step.
_EPOCH = re.compile(r"\{'loss': .*'epoch': '?([\d.]+)")
_ERROR = re.compile(r"\s*(error |(\w+\.)*\w*(Error|Exception)\b)")
_QUARTER, _HEAD = 900, 200


@dataclass(frozen=True)
class Line:
    """One line, without colour and prefix."""

    number: int
    """From 1."""
    rank: int | None
    text: str
    moment: Moment | None
    """Its own, or that of the line above."""
    step: int | None
    """The training step that it reports."""
    pod: str | None = None
    timed: bool = True
    """Whether the time is its own."""
    epoch: str | None = None
    """How far it says that training is, where it names no step."""

    @property
    def progress(self) -> int | str | None:
        """What tells a report of training from the others; None if the line is none."""
        return self.epoch if self.step is None else self.step


def read(raw: Iterable[str]) -> Iterator[Line]:
    """Yield the lines, in the order given; a record of JSON may hold several."""
    last: Moment | None = None
    ahead: float | None = None
    for number, each in enumerate(raw, 1):
        for written, time, holder in _records(each):
            text, head, names = _without_prefixes(written)
            outer, inner = moment_of(time) or moment_of(head), moment_of(text[:_HEAD])
            moment, zoned = outer or inner or (None, False)
            if ahead is None and outer and zoned and inner and not inner[1]:
                # The machine's zone, from a line that gives its time in both.
                ahead = round((inner[0] - outer[0]) / _QUARTER) * _QUARTER
            if moment is not None and not zoned:
                moment -= ahead or 0
            # Without a time of its own it is as late as the line above, whoever wrote that.
            last = last if moment is None else moment
            text = _REPEATED.sub("", text)
            step = _step(text)
            epoch = _EPOCH.match(text) if step is None else None
            pod = names.get("path") or holder or names.get("name") or names.get("host")
            yield Line(
                number,
                _rank(names, text),
                text,
                last,
                step,
                pod,
                moment is not None,
                epoch[1] if epoch else None,
            )


def _records(raw: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield text, time and pod of each line of a line: a record may hold several."""
    if raw[:1] == "{" and len(raw) < _RECORD and (record := _record(raw)):
        texts, time, pod = record
        for text in texts.splitlines() or [""]:
            yield text[:LONGEST], time, pod
    else:
        yield raw[-LONGEST:] if "\r" in raw[LONGEST:] else raw[:LONGEST], "", None


def in_order(lines: Iterable[Line]) -> list[Line]:
    """Order lines by the time in them; those before the first time stay before."""
    return sorted(lines, key=lambda line: (line.moment or 0, line.number))


def _record(raw: str) -> tuple[str, str, str | None] | None:
    value: object = raw
    time, pod = "", None
    for _ in range(_NESTED):
        if not isinstance(value, str) or not value.lstrip().startswith("{"):
            break
        try:
            found = json.loads(value)
        except ValueError:
            break
        key = next((key for key in _MESSAGE if isinstance(found.get(key), str)), None)
        if key is None:
            break
        more = found.get("error")
        value = f"{found[key]}: {more}" if isinstance(more, str) else found[key]
        time = next((str(found[each]) for each in _TIME if each in found), time)
        about = found.get("kubernetes")
        pod = about.get("pod_name", pod) if isinstance(about, dict) else pod
    return (str(value), time, pod) if value is not raw else None


def _without_prefixes(raw: str) -> tuple[str, str, dict[str, str]]:
    """Return a line's text, what stood before it, and what that names."""
    text = _COLOUR.sub("", raw.rstrip("\r\n")).rpartition("\r")[2]
    names: dict[str, str] = {}
    place = 0
    while (found := _PREFIX.match(text, place)) and found.end() > place:
        names |= {name: given for name, given in found.groupdict().items() if given is not None}
        place = found.end()
    return text[place:], text[:place], names


def _rank(names: Mapping[str, str], text: str) -> int | None:
    inside = _RANK_IN_TEXT.search(text) if "torch" not in names and "ank" in text else None
    if inside:
        return int(inside[1] or inside[2])
    return next((int(names[each]) for each in _RANKS if each in names), None)


def _step(text: str) -> int | None:
    # An error that names a step reports none.
    if ("iteration" not in text and "step" not in text) or _ERROR.match(text):
        return None
    found = _PROGRESS.search(text)
    return int(next(group for group in found.groups() if group)) if found else None


def moment_of(text: str) -> tuple[Moment, bool] | None:
    """Return the first time in a text, and whether it says its zone."""
    if not text:
        return None
    if text.isdigit() and len(text) in (_SECONDS, _MILLISECONDS):
        seconds = int(text) / (1 if len(text) == _SECONDS else 1000)
        day = datetime.fromtimestamp(seconds, UTC)
        return _moment(day.month, day.day, 0, 0, seconds % _DAY), True
    if found := _WITH_ZONE.search(text) or _GLOG.search(text):
        month, day_of, hour, minute = map(int, found.groups()[:4])
        second = float(found[5].replace(",", "."))
        zone = found[6] if found.re is _WITH_ZONE else None
        return _moment(month, day_of, hour, minute, second - _offset(zone)), zone is not None
    if (found := _SYSLOG.search(text)) and found.group(1) in _MONTHS:
        month = _MONTHS.index(found.group(1)) // 3 + 1
        day_of, hour, minute, whole = (int(found.group(place)) for place in range(2, 6))
        return _moment(month, day_of, hour, minute, whole), False
    return None


def _moment(month: int, day: int, hour: int, minute: int, second: float) -> Moment:
    try:
        days = date(_YEAR, month, day).toordinal() - date(_YEAR, 1, 1).toordinal()
    except ValueError:
        days = 0
    return days * _DAY + hour * 3600 + minute * 60 + second


def _offset(zone: str | None) -> float:
    if zone is None or zone == "Z":
        return 0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds
