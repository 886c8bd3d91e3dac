"""Rules over the monitors of the Prometheus operator: the Services, pods and ports they select."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import (
    Found,
    ManifestSet,
    built_by_kustomize,
    in_one_folder,
)
from megatron_eks.rules.objects.pod_selection import labels_of
from megatron_eks.rules.platform.device_plugins import is_near
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_ENDPOINTS = {"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"}
_SELECTORS = {
    "PodMonitor": "podMonitorSelector",
    "PrometheusRule": "ruleSelector",
    "ServiceMonitor": "serviceMonitorSelector",
}
_GROUP = "monitoring.coreos.com"
_ACTIONS = (
    *("drop", "dropequal", "hashmod", "keep", "keepequal", "labeldrop", "labelkeep", "labelmap"),
    *("lowercase", "replace", "uppercase"),
)
_Target = tuple[Manifest, Mapping[str, Json], frozenset[str]]
"""A Service, or the owner of pods, with the labels and the names of its ports."""


def endpoints(manifest: Manifest) -> Iterator[Finding]:
    """Refuse endpoints under the name that the other kind of monitor has for them.

    Prometheus operator, API reference, PodMonitorSpec and ServiceMonitorSpec.
    """
    key = _ENDPOINTS.get(manifest.kind)
    if key is None or manifest.group != _GROUP:
        return
    other = next(each for each in _ENDPOINTS.values() if each != key)
    if other in manifest.spec:
        found = f"a {manifest.kind} has no {other}: nothing is scraped"
        yield manifest.find(Code.MONITOR, ("spec", other), found, f"write {key}")
    elif manifest.spec and is_absent(manifest.spec.get(key)) and "selector" in manifest.spec:
        found = f"no {key}: nothing is scraped"
        remedy = f"add {key} with the name of a port"
        yield manifest.find(Code.MONITOR, ("spec", key), found, remedy, Level.WARNING)
    for index, value in enumerate(items(manifest.spec.get(key)) or []):
        for part in ("relabelings", "metricRelabelings"):
            for place, each in enumerate(items((mapping(value) or {}).get(part)) or []):
                action = text((mapping(each) or {}).get("action"))
                # The definition takes each word in small letters, and with its first one large.
                if action and action.lower() not in _ACTIONS and not is_placeholder(action):
                    path: Path = ("spec", key, index, part, place, "action")
                    found = f"{shown(action)} is no action: the API server refuses the monitor"
                    remedy = f"use {', '.join(_ACTIONS)}"
                    yield manifest.find(Code.MONITOR, path, found, remedy)


def monitors(together: ManifestSet) -> Iterator[Found]:
    """Warn of a monitor that finds nothing to scrape among the objects beside it.

    Prometheus operator, API reference, ServiceMonitorSpec and PodMonitorSpec: it selects labels of
    Services (or pods) of its own namespace unless namespaceSelector says more, and an endpoint's
    port is a name, never a number.
    """
    for monitor in together.of(*_ENDPOINTS):
        selector = mapping(monitor.spec.get("selector")) or {}
        labels = mapping(selector.get("matchLabels")) or {}
        if not labels or not is_absent(selector.get("matchExpressions")):
            continue
        near = [each for each in _targets(monitor, together) if is_near(monitor, each[0])]
        fitting = [each for each in near if _has(each[1], labels)]
        seen = [each for each in fitting if _may_see(monitor, each[0])]
        if seen:
            yield from _ports(monitor, seen)
        elif fitting:
            found = f"{fitting[0][0].title} is in namespace {shown(fitting[0][0].namespace)}, "
            found += "where it does not look"
            remedy = f"add {fitting[0][0].namespace} to its matchNames"
            yield _found(monitor, ("spec", "namespaceSelector"), found, remedy)
        else:
            yield from _nearly(monitor, labels, near)


def selected(together: ManifestSet) -> Iterator[Found]:
    """Warn of a monitor, or of rules, that the Prometheus beside it does not select.

    Prometheus operator, API reference, PrometheusSpec: serviceMonitorSelector and its like take
    objects by their labels, and what none takes is not scraped. Kustomize may add labels.
    """
    servers = [e for e in together.of("Prometheus") if e.group == _GROUP]
    for monitor in together.of(*_SELECTORS):
        near = [each for each in servers if in_one_folder(each, monitor)]
        wanted = [_wanted(each, _SELECTORS[monitor.kind]) for each in near]
        odd = any(is_placeholder(str(each)) for each in monitor.labels.values())
        if odd or monitor.group != _GROUP or built_by_kustomize(monitor, together):
            continue
        if near and all(each and not _has(monitor.labels, each) for each in wanted):
            labels = wanted[0] or {}
            key, value = next((k, v) for k, v in labels.items() if monitor.labels.get(k) != v)
            there = monitor.labels.get(key)
            found = f"{near[0].title} selects {key}: {value}"
            found += ", and this has " + ("no such label" if there is None else f"{there}")
            end = "nothing is scraped" if monitor.kind in _ENDPOINTS else "its rules are not read"
            path: Path = ("metadata", "labels", *(() if there is None else (key,)))
            yield _found(monitor, path, f"{found}: {end}", f"write {key}: {value}")


def _wanted(server: Manifest, key: str) -> "Mapping[str, Json] | None":
    """Return the labels that a server wants; None where it may take others too, or none at all."""
    selector = mapping(server.spec.get(key)) or {}
    labels = mapping(selector.get("matchLabels")) or {}
    odd = any(is_placeholder(str(each)) for each in labels.values())
    return None if odd or not is_absent(selector.get("matchExpressions")) else labels


def _found(monitor: Manifest, path: Path, found: str, remedy: str) -> Found:
    return monitor, monitor.find(Code.MONITOR, path, found, remedy, Level.WARNING)


def _targets(monitor: Manifest, together: ManifestSet) -> Iterator[_Target]:
    if monitor.kind == "ServiceMonitor":
        for service in together.of("Service"):
            yield service, service.labels, _names(service.spec.get("ports"))
        return
    for manifest in together.objects:
        for pod in manifest.pods:
            ports = [name for one in pod.containers for name in _names(one.body.get("ports"))]
            yield manifest, labels_of(manifest, pod), frozenset(ports)


def _names(ports: Json) -> frozenset[str]:
    named = [text((mapping(each) or {}).get("name")) for each in items(ports) or []]
    return frozenset(each for each in named if each)


def _has(given: Mapping[str, Json], labels: Mapping[str, Json]) -> bool:
    return all(given.get(key) == value for key, value in labels.items())


def _may_see(monitor: Manifest, target: Manifest) -> bool:
    selector = mapping(monitor.spec.get("namespaceSelector"))
    if (
        selector is None
        or selector.get("any") is True
        or None
        in {
            monitor.namespace,
            target.namespace,
        }
    ):
        return True
    names = items(selector.get("matchNames"))
    if names is None or any(is_placeholder(str(each)) for each in names):
        return True
    return target.namespace in (names or [monitor.namespace])


def _ports(monitor: Manifest, seen: list[_Target]) -> Iterator[Found]:
    known = {name for _, _, names in seen for name in names}
    key = _ENDPOINTS[monitor.kind]
    for index, value in enumerate(items(monitor.spec.get(key)) or []):
        given = (mapping(value) or {}).get("port")
        if isinstance(given, int):
            found = f"{given} is no name of a port: the API server refuses the monitor"
            remedy = f"write one of {', '.join(sorted(known)) or 'the names of its ports'}"
            path: Path = ("spec", key, index, "port")
            yield monitor, monitor.find(Code.MONITOR, path, found, remedy)
        port = text((mapping(value) or {}).get("port"))
        if port is not None and known and port not in known and not is_placeholder(port):
            found = f"no port named {shown(port)} of {seen[0][0].title}"
            remedy = f"there: {', '.join(sorted(known))}"
            yield _found(monitor, ("spec", key, index, "port"), found, remedy)


def _nearly(monitor: Manifest, labels: Mapping[str, Json], near: list[_Target]) -> Iterator[Found]:
    """Find one whose value stands under another key, or whose key has another value."""
    ports = {
        text((mapping(each) or {}).get("port"))
        for each in items(monitor.spec.get(_ENDPOINTS[monitor.kind])) or []
    }
    with_port = [each for each in near if ports & each[2]]
    for target, given, names in near:
        same_value = any(each in given.values() for each in labels.values())
        alike = target.name == monitor.name or same_value
        # The only one with the port, in one folder, and called nearly what the monitor looks for.
        alone = len(with_port) == 1 and in_one_folder(target, monitor)
        alike = alike or (alone and _akin(labels, given))
        if alike and ports & names and _may_see(monitor, target):
            what = "Service" if monitor.kind == "ServiceMonitor" else "pods"
            there = ", ".join(f"{key}={value}" for key, value in sorted(given.items()))
            found = f"no {what} beside it has these labels; {target.title} has {there or 'none'}"
            remedy = f"select labels of the {what}"
            yield _found(monitor, ("spec", "selector", "matchLabels"), found, remedy)
            return


def _akin(labels: Mapping[str, Json], given: Mapping[str, Json]) -> bool:
    """Tell whether every value has its words in a value of the other, or the other way round."""
    sets = [
        [{*str(value).replace("_", "-").split("-")} for value in each.values()]
        for each in (labels, given)
    ]
    return bool(sets[0]) and all(
        any(wanted <= there or there <= wanted for there in sets[1]) for wanted in sets[0]
    )
