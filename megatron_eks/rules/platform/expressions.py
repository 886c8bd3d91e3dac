"""Rules over the expressions of Prometheus' rules: brackets, operators, ranges, gauges of DCGM."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.platform.dcgm import nearest
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`")
_COMMENT = re.compile(r"#[^\n]*")
_PAIRS = {")": "(", "]": "[", "}": "{"}
_OF_A_RANGE = re.compile(
    r"\b(?P<function>rate|irate|increase|delta|idelta|deriv|changes|resets|(?:avg|min|max|sum|count"
    r"|last|quantile|stddev)_over_time)\s*\(\s*(?P<metric>[a-zA-Z_:][\w:]*)\s*"
    r"(?:\{[^{}]*\})?\s*(?P<range>\[|\))"
)
# Loki reads such objects too: LogQL has a | before each step, and its |= is one of them.
_OF_LOGS = re.compile(r"(?<!\|)\|(?!\|)")
_BRACES = re.compile(r"\{[^{}]*\}")
# What other languages write; outside of braces PromQL has no = and =~.
_OPERATORS = re.compile(r"[=!]==|=>|=<|<>|&&|\|\||=~|(?<![=!<>])=(?!=)")
_MEANT = {
    "=>": ">=",
    "=<": "<=",
    "<>": "!=",
    "=": "==",
    "===": "==",
    "!==": "!=",
    "&&": "and",
    "||": "or",
}
_GROWTH = frozenset({"rate", "irate", "increase"})
# NVIDIA/dcgm-exporter, etc/default-counters.csv: fields of the type gauge.
_GAUGES = re.compile(
    r"DCGM_FI_DEV_(XID_ERRORS|SM_CLOCK|MEM_CLOCK|MEMORY_TEMP|GPU_TEMP|POWER_USAGE|GPU_UTIL"
    r"|MEM_COPY_UTIL|ENC_UTIL|DEC_UTIL|FB_FREE|FB_USED|FB_RESERVED|ROW_REMAP_FAILURE)"
    r"|DCGM_FI_PROF_(GR_ENGINE|SM|PIPE_TENSOR|DRAM)_ACTIVE"
)
_XID = "DCGM_FI_DEV_XID_ERRORS"
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_FIELD = re.compile(r"\bDCGM_FI_[A-Z0-9_]+\b")


def expressions(manifest: Manifest) -> Iterator[Finding]:
    """Require expressions that Prometheus can read, and growth of counters alone.

    Prometheus, "Querying basics", range vector selectors, "Operators", and "Query functions": rate
    and increase are for counters, over a range. Prometheus loads no rule of a group with one that
    it cannot read. NVIDIA/dcgm-exporter, issue 500: the field holds the last error's number.
    """
    if (manifest.group, manifest.kind) != ("monitoring.coreos.com", "PrometheusRule"):
        return
    for index, value in enumerate(items(manifest.spec.get("groups")) or []):
        for number, rule in enumerate(items((mapping(value) or {}).get("rules")) or []):
            written = text((mapping(rule) or {}).get("expr"))
            if written is None or is_placeholder(written):
                continue
            path = ("spec", "groups", index, "rules", number, "expr")
            for found, remedy, level in _problems(written):
                yield manifest.find(Code.MONITOR, path, found, remedy, level)


def texts(manifest: Manifest) -> Iterator[Finding]:
    """Require names and templates that Prometheus can read, and each group once.

    Prometheus, pkg/rulefmt: it refuses the file at a name of a record that is none, at a template
    that it cannot parse, and at a second group of one name.
    """
    if (manifest.group, manifest.kind) != ("monitoring.coreos.com", "PrometheusRule"):
        return
    seen: set[str] = set()
    for index, value in enumerate(items(manifest.spec.get("groups")) or []):
        group, place = mapping(value) or {}, ("spec", "groups", index)
        name = text(group.get("name"))
        if name is not None and name in seen:
            found = f"a second group {shown(name)}: Prometheus loads none of this object's rules"
            path: Path = (*place, "name")
            yield manifest.find(Code.MONITOR, path, found, "give it another name")
        seen.add(name or "")
        for number, each in enumerate(items(group.get("rules")) or []):
            rule, inside = mapping(each) or {}, (*place, "rules", number)
            record = text(rule.get("record"))
            if record and not _METRIC.fullmatch(record) and not is_placeholder(record):
                found = f"{shown(record)} is no name of a metric: Prometheus loads no rule"
                remedy = f"write {re.sub(r'[^a-zA-Z0-9_:]', '_', record)}"
                yield manifest.find(Code.MONITOR, (*inside, "record"), found, remedy)
            for key in ("annotations", "labels"):
                for label, said in (mapping(rule.get(key)) or {}).items():
                    plain = _STRING.sub('""', said) if isinstance(said, str) else ""
                    if plain.count("{{") != plain.count("}}"):
                        found = "a {{ without its }}: Prometheus loads no rule of this group"
                        path = (*inside, key, label)
                        yield manifest.find(Code.MONITOR, path, found, "close each {{ with }}")


def _problems(written: str) -> Iterator[tuple[str, str, Level]]:
    plain = _COMMENT.sub("", _STRING.sub('""', written))
    odd = _unpaired(plain)
    if odd is not None:
        yield (
            f"{odd}: Prometheus loads no rule of this group",
            "add the other one, or remove it",
            Level.ERROR,
        )
        return
    operator = _OPERATORS.search(_BRACES.sub("{}", plain))
    if operator is not None and not _OF_LOGS.search(plain):
        found = f"{operator[0]} is no operator here: Prometheus loads no rule of this group"
        meant = _MEANT.get(operator[0])
        remedy = f"write {meant}" if meant else "compare labels inside braces, numbers by == or !="
        yield found, remedy, Level.ERROR
        return
    for name in sorted({*_FIELD.findall(plain)}):
        near = nearest(name)
        if near is not None:
            found = f"DCGM has no field {name}: the expression finds nothing"
            yield found, f"did you mean {near}?", Level.WARNING
    for match in _OF_A_RANGE.finditer(plain):
        function, metric = match["function"], match["metric"]
        if match["range"] == ")":
            found = f"{function}({metric}) has no range: Prometheus loads no rule of this group"
            yield found, "write one after the metric and its labels, such as [5m]", Level.ERROR
        elif function in _GROWTH and _GAUGES.fullmatch(metric):
            if metric == _XID:
                found = f"{_XID} holds the number of the last error, and does not grow with each"
                yield found, f"write {_XID} > 0, or use DCGM_EXP_XID_ERRORS_COUNT", Level.WARNING
            else:
                found = f"{function} of {metric}, a gauge: it takes each fall for a restart"
                yield found, "use avg_over_time, max_over_time or deriv", Level.WARNING


def _unpaired(plain: str) -> str | None:
    """Say which bracket or quote has no other one."""
    open_ones: list[str] = []
    for char in plain.replace('""', ""):
        if char in _PAIRS.values():
            open_ones.append(char)
        elif char in _PAIRS:
            if not open_ones or open_ones.pop() != _PAIRS[char]:
                return f"a {char} without its {_PAIRS[char]}"
        elif char in "\"'`":
            return f"a {char} without a second one"
    return f"a {open_ones[-1]} that is never closed" if open_ones else None
