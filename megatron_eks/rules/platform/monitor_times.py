"""Rule over times that Prometheus' operator reads: of rules, groups and endpoints."""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown
from megatron_eks.rules.workloads import Manifest

_GROUP = "monitoring.coreos.com"
_UNITS = (("y", 31_536_000), ("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_DURATION = re.compile(
    "".join(rf"(?:(?P<{unit}>[0-9]+){unit})?" for unit, _ in _UNITS) + r"(?:(?P<ms>[0-9]+)ms)?"
)
_ENDPOINTS = {"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"}


def durations(manifest: Manifest) -> Iterator[Finding]:
    """Require durations as Prometheus writes them, and no longer wait than the interval.

    Prometheus operator, API reference, Duration and NonEmptyDuration, whose pattern the API server
    applies; Prometheus, scrape_config: scrape_timeout is not above scrape_interval, and the
    operator leaves such a monitor out.
    """
    if manifest.group != _GROUP:
        return
    spec = manifest.spec
    for index, value in enumerate(items(spec.get("groups")) or []):
        group = mapping(value) or {}
        path: Path = ("spec", "groups", index)
        yield from _written(manifest, path, group, ("interval",))
        for number, rule in enumerate(items(group.get("rules")) or []):
            place, body = (*path, "rules", number), mapping(rule) or {}
            yield from _written(manifest, place, body, ("for", "keep_firing_for"))
            yield from _named(manifest, place, body)
    key = _ENDPOINTS.get(manifest.kind, "")
    for index, value in enumerate(items(spec.get(key)) or []):
        body, path = mapping(value) or {}, ("spec", key, index)
        yield from _written(manifest, path, body, ("interval", "scrapeTimeout"))
        interval, wait = (_seconds(body.get(name)) for name in ("interval", "scrapeTimeout"))
        if interval and wait and wait > interval:
            found = f"waits {body['scrapeTimeout']} in an interval of {body['interval']}: the "
            found += "operator leaves the monitor out"
            remedy = f"write at most {body['interval']}"
            yield manifest.find(Code.MONITOR, (*path, "scrapeTimeout"), found, remedy)


def _written(
    manifest: Manifest, path: Path, body: Mapping[str, Json], keys: tuple[str, ...]
) -> Iterator[Finding]:
    for key in keys:
        value = body.get(key)
        if is_absent(value) or is_placeholder(str(value)) or _seconds(value) is not None:
            continue
        found = f"{shown(value)} is no duration: the API server refuses it"
        yield manifest.find(Code.MONITOR, (*path, key), found, "write it like 5m, 30s or 1h30m")


def _named(manifest: Manifest, path: Path, body: Mapping[str, Json]) -> Iterator[Finding]:
    """Require a rule to be one of the two kinds.

    Prometheus, "Recording rules", syntax: a rule has `record` or `alert`.
    """
    given = [key for key in ("alert", "record") if not is_absent(body.get(key))]
    if len(given) == 1 or not body or any(is_placeholder(str(each)) for each in body.values()):
        return
    found = f"{' and '.join(given) or 'neither alert nor record'}: Prometheus takes no such rule"
    yield manifest.find(Code.MONITOR, path, found, "write one of alert and record")


def _seconds(value: Json) -> float | None:
    """Return a duration in seconds; None for what is none."""
    if value in ("", "0"):
        return 0
    met = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if met is None:
        return None
    return sum(int(met[unit] or 0) * size for unit, size in _UNITS) + int(met["ms"] or 0) / 1000
