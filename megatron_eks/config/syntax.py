"""Which line of a text that is not YAML a person has to mend, and how.

libyaml names the place where it noticed, which is often below the cause; its sources are the list
of what it can say: scanner.c and parser.c of yaml/libyaml 0.2.5. What was meant is told from the
lines, and only of a text that is broken anyway.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from megatron_eks.catalog.tables import entries, sections
from megatron_eks.config.scalars import odd_sign

if TYPE_CHECKING:
    import yaml

# Git's marks of a conflict (git-merge(1), "How conflicts are presented").
_CONFLICT = re.compile(r"(<{7}|>{7})( |$)")
_DASH = re.compile(r"\s*-([A-Za-z_]\w*):(\s|$)")
_COLON = re.compile(r"\s*([A-Za-z_]\w*):([^\s/:].*)")
_ASSIGNED = re.compile(r"\s*([A-Za-z_][\w-]*) ?= ?\S.*")
# The sign of a text in quotes that does not end on its line.
_UNCLOSED = re.compile(
    r"""^(?!\s*#)(?:.*[:,\[{-]\s+|.*[\[{])?(?:(")(?:[^"\\]|\\.)*|(')(?:[^']|'')*)$"""
)
# YAML 1.2, section 5.1: what no YAML file may hold.
_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Where libyaml counts a line: fewer signs than str.splitlines() knows.
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_ABOVE = 5
"""So many lines below its cause a parser may still go on before it notices."""

_WORDS = entries(sections("formats.txt")["yaml"])


class Mistake(NamedTuple):
    """The line to mend, what is wrong there, and what to write."""

    line: int
    cause: str
    remedy: str


class _Place(NamedTuple):
    """What libyaml says: the problem and where, and what it was reading, and since where."""

    problem: str
    line: int
    column: int
    context: str
    start: int
    text: str
    """The line itself; empty behind the last one."""


def mistake(text: str, error: "yaml.YAMLError") -> Mistake:
    """Return the likely cause of an error, or what libyaml says of it."""
    lines = _BREAK.split(text)
    place = _place(error, lines)
    for find in (_sign, _slip_above, _quote, _flow, _colon, _layout):
        if found := find(lines, place):
            return found
    remedies = (remedy for words, remedy in _WORDS if words in place.problem)
    return Mistake(place.line, place.problem, next(remedies, "correct the syntax at this line"))


def _place(error: "yaml.YAMLError", lines: Sequence[str]) -> _Place:
    said: dict[str, Any] = vars(error)
    mark, start = said.get("problem_mark"), said.get("context_mark")
    problem = said.get("problem") or said.get("reason") or str(error)
    line, column = (mark.line + 1, mark.column) if mark else (1, 0)
    text = "".join(lines[line - 1 : line])
    since = start.line + 1 if start else line
    return _Place(problem, line, column, said.get("context") or "", since, text)


def _sign(lines: Sequence[str], place: _Place) -> Mistake | None:
    """Find what no YAML may hold: libyaml gives a control character no line."""
    for number, each in enumerate(lines, start=1):
        if _CONFLICT.match(each):
            return Mistake(number, "a conflict of a merge is left", "keep one of its two sides")
        if "control characters" in place.problem and (found := _CONTROL.search(each)):
            code = f"U+{ord(found.group()):04X}"
            return Mistake(number, f"the control character {code}", "remove it, or retype the line")
    return None


def _slip_above(lines: Sequence[str], place: _Place) -> Mistake | None:
    """Find a blank that is missing, or a sign that only looks like one, at the place or above."""
    for number in range(min(place.line, len(lines)), max(place.line - _ABOVE, 0), -1):
        line = lines[number - 1]
        if found := _DASH.match(line):
            return Mistake(number, "no blank after the dash", f"write - {found[1]}:")
        if (found := _COLON.fullmatch(line)) and ": " not in line:
            value = found[2].partition(" #")[0]
            return Mistake(number, "no blank after the colon", f"write {found[1]}: {value}")
        if slip := odd_sign(line[: len(line) - len(line.lstrip())]):
            return Mistake(number, "a line begins with a sign that only looks like a blank", slip)
    if "\t" in place.text:
        return Mistake(place.line, place.problem, "indent with spaces: YAML takes no tab there")
    return None


def _quote(lines: Sequence[str], place: _Place) -> Mistake | None:
    at_end = "end of stream" in place.problem
    for number, each in enumerate(lines[: place.line], start=1):
        found = _UNCLOSED.match(each)
        sign = found[found.lastindex or 0] if found else ""
        if found and (at_end or (number < place.line and sign in place.text)):
            remedy = f"close it on its line with the same sign: {sign}"
            return Mistake(number, f"a quote {sign} opens here, and nothing closes it", remedy)
    if at_end:
        return Mistake(place.start, "what begins here has no end", "close it: a quote or a bracket")
    return None


def _flow(lines: Sequence[str], place: _Place) -> Mistake | None:
    if "flow" not in place.context or "',' or" not in place.problem:
        return None
    end = place.problem.rpartition("or ")[2].strip("'")
    begin = {"]": "[", "}": "{"}[end]
    if place.start == place.line:
        remedy = f"write a comma between entries, {end} at the end, and texts with {begin} in "
        return Mistake(place.line, place.problem, f"{remedy}quotes")
    if end in lines[place.start - 1].partition(" #")[2]:
        cause = f"the comment hides the {end} that closes the {begin} of this line"
        return Mistake(place.start, cause, f"write {end} before the #")
    cause = f"the {begin} of this line is not closed before line {place.line}"
    return Mistake(place.start, cause, f"write {end} where it ends, and commas between entries")


def _colon(lines: Sequence[str], place: _Place) -> Mistake | None:
    unfinished = "could not find expected ':'" in place.problem
    if not unfinished and "mapping values are not allowed" not in place.problem:
        return None
    number = place.start if unfinished else place.line - 1
    line = "".join(lines[number - 1 : number])
    if ": " not in line and (found := _ASSIGNED.fullmatch(line)):
        return Mistake(number, "= after the key", f"write {found[1]}: and a blank in its place")
    if unfinished:
        remedy = "write KEY: VALUE, or put the value on the line of its key"
        return Mistake(number, "a line without a colon, and so without a key", remedy)
    return None


def _layout(lines: Sequence[str], place: _Place) -> Mistake | None:
    if not place.text or not re.search("expected (key|'-'|<doc)", place.problem):
        return None
    if before := place.text[: place.column].rstrip():
        closing = before[-1]
        remedy = "put the whole value in quotes"
        if place.text[place.column :].strip() in {",", ";"}:
            remedy = "remove the comma or semicolon: lines of YAML end without"
        if closing == "'":
            remedy = "write '' for each ' of the text, or use double quotes"
        return Mistake(place.line, f"something follows the closing {closing}", remedy)
    if "<doc" in place.problem:
        remedy = "write the whole file as `key: value` lines"
        return Mistake(place.line, "a second value without a key", remedy)
    return _depth(lines, place)


def _depth(lines: Sequence[str], place: _Place) -> Mistake:
    depth, levels = _indent(place.text), _levels(lines[: place.line - 1])
    if depth not in levels:
        near = min(levels, key=lambda level: (abs(level - depth), -level), default=0)
        shown = ", ".join(map(str, levels))
        cause = f"indented by {depth}, and the lines above by {shown}"
        return Mistake(place.line, cause, f"indent it by {near}, or as the block it belongs to")
    if place.text.lstrip().startswith("-"):
        cause = f"a dash where a key is expected, indented by {depth}"
        return Mistake(place.line, cause, "remove the dash, or give the list a key above it")
    deeper = [level for level in levels if level > depth]
    cause = f"a key among the entries of a list, indented by {depth} as their dashes"
    below = f"indent it by {deeper[0]}" if deeper else "indent it as the keys of the entry above"
    return Mistake(place.line, cause, f"{below}, or begin it with a dash")


def _levels(lines: Sequence[str]) -> list[int]:
    """Return the depths that are open after these lines; behind a dash is one more."""
    levels: list[int] = []
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            depth = _indent(line)
            levels = [*(level for level in levels if level < depth), depth]
            while dash := re.match(r"-\s+(?=\S)", line[levels[-1] :]):
                levels.append(levels[-1] + dash.end())
    return levels


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
