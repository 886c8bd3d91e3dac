"""Rules over the fields of eksctl's cluster files: names, kinds, and what goes together."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.shapes import EKSCTL, Misfit, Shape, misfits, table
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_KIND = "eksctl.io/v1alpha5 ClusterConfig"
_GROUPS = ("managedNodeGroups", "nodeGroups")
_VERSION = ("metadata", "version")
_CLOSE = 0.75
# What node groups of EKS and CloudFormation, and Karpenter, call it.
_ELSEWHERE = {
    "amitype": "amiFamily",
    "capacitytype": "spot: true, or nothing",
    "desiredsize": "desiredCapacity",
    "disksize": "volumeSize",
    "noderole": "iam.instanceRoleARN",
    "remoteaccess": "ssh",
    "scalingconfig": "minSize, desiredCapacity and maxSize in the group itself",
    "subnetids": "subnets",
}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def fields(manifest: Manifest) -> Iterator[Finding]:
    """Require the keys of eksctl's own schema, with values of their kind.

    eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/assets/schema.json, and pkg/eks/api.go, which
    reads the file twice: strictly, where an unknown key, or a text for a number, ends the command,
    and then as Kubernetes reads objects. The first takes keys in any case and the second does not,
    so a key in another case is lost without a word (issues 7906, 8320 and 8542).
    """
    shapes = table(EKSCTL)
    shape = shapes[_KIND] if _is_file(manifest) else "any"
    for misfit in misfits(dict(manifest.body), shape, shapes, loose=False):
        key = str(misfit.path[-1]) if misfit.path else ""
        same = next((each for each in misfit.known if key.lower() == each.lower()), None)
        # The version has words of its own.
        if misfit.missing or misfit.path == _VERSION:
            continue
        if same is not None:
            found = f"{shown(key)} in another case than eksctl's {same}: it goes on without it"
            yield _found(manifest, misfit.path, found, f"write {same}")
        elif misfit.known:
            yield _unknown(manifest, misfit, shape)
        else:
            found = f"{shown(misfit.value)} is not what eksctl takes here: it refuses the file"
            yield _found(manifest, misfit.path, found, f"write {_wanted(misfit)}")


def _is_file(manifest: Manifest) -> bool:
    return f"{text(manifest.body.get('apiVersion'))} {manifest.kind}" == _KIND


def _found(
    manifest: Manifest, path: Path, found: str, remedy: str, level: Level = Level.ERROR
) -> Finding:
    return manifest.find(Code.EKSCTL, path, found, remedy, level)


def _wanted(misfit: Misfit) -> str:
    """Say what is taken; the one value that is meant, where that can be seen."""
    digits = str(misfit.value).removesuffix("i").removesuffix("B").rstrip("GT").strip()
    if misfit.expected == "a whole number" and digits.isdigit():
        return f"{digits}, without quotes and without a unit"
    if misfit.expected == "true or false" and str(misfit.value) in {"true", "false"}:
        return f"{misfit.value}, without quotes"
    said = str(misfit.value).replace("AL2", "AmazonLinux2").lower()
    return next((each for each in misfit.choices if each.lower() == said), misfit.expected)


def _unknown(manifest: Manifest, misfit: Misfit, shape: Shape) -> Finding:
    """Say where an unknown key belongs; one that is near to nothing may be of a later release."""
    key, here = str(misfit.path[-1]), _shape_at(shape, misfit.path[:-1])
    below = [
        name
        for name, inner in (here.items() if isinstance(here, dict) else ())
        if isinstance(inner, dict) and key.lower() in {each.lower() for each in inner}
    ]
    same = [each for each in misfit.known if _words(each) == _words(key)]
    close = get_close_matches(key, misfit.known, 1, _CLOSE) or same
    own = misfit.path[:1] == _GROUPS[:1] and _shape_at(shape, (_GROUPS[1], 0, key))
    found = f"eksctl knows no {shown(key)} here"
    if below:
        return _found(manifest, misfit.path, found, f"put it under {below[0]}")
    if close:
        return _found(manifest, misfit.path, found, f"did you mean {close[0]}?")
    if own:
        found = f"{shown(key)} in a managed group, and eksctl has it for nodeGroups alone"
        return _found(manifest, misfit.path, found, "remove it, or write the group as nodeGroups")
    groups = [each for each in _GROUPS if _shape_at(shape, (each, 0, key)) is not None]
    if len(misfit.path) == 1 and groups:
        return _found(manifest, misfit.path, found, _into_a_group(manifest, key, groups))
    other = _ELSEWHERE.get(key.lower()) if misfit.path[0] in _GROUPS else None
    if other:
        found += ": it refuses the file"
        return _found(manifest, misfit.path, found, f"write {other}")
    remedy = "remove it, unless a later eksctl has it: this one refuses the file"
    return _found(manifest, misfit.path, found, remedy, Level.WARNING)


def _words(key: str) -> list[str]:
    """Return the words of a key in one order: enableEFA is efaEnabled."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", key)
    return sorted(re.sub(r"e?d$", "", word.lower()).rstrip("e") for word in words)


def _into_a_group(manifest: Manifest, key: str, kinds: list[str]) -> str:
    """Say which group a key of groups belongs to, or has it already."""
    groups = [
        (f"{kind}[{index}]", mapping(each) or {})
        for kind in kinds
        for index, each in enumerate(items(manifest.body.get(kind)) or [])
    ]
    having = [place for place, body in groups if key in body]
    if having:
        return f"remove it: {' and '.join(having)} {'has' if len(having) == 1 else 'have'} it"
    return f"move it under {groups[0][0] if len(groups) == 1 else f'{kinds[0]}[N]'}"


def _shape_at(shape: Shape, path: Path) -> "Shape | None":
    for step in path:
        if isinstance(step, int):
            shape = shape[0] if isinstance(shape, list) else "any"
        else:
            inner = shape.get(step, shape.get("*")) if isinstance(shape, dict) else None
            if inner is None:
                return None
            shape = inner
    return shape


def together(manifest: Manifest) -> Iterator[Finding]:
    """Require of groups what eksctl requires of fields together, and a way out for private nodes.

    eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/validation.go (capacity reservations),
    pkg/utils/taints; "VPC configuration", NAT gateway: Disable leaves private nodes no way out.
    """
    if not _is_file(manifest):
        return
    for key in _GROUPS:
        for index, value in enumerate(items(manifest.body.get(key)) or []):
            group = mapping(value) or {}
            path: Path = (key, index)
            yield from _market(manifest, path, group)
            yield from _reservation(manifest, path, group)
            yield from _taints(manifest, (*path, "taints"), group.get("taints"))
            yield from _way_out(manifest, path, group)


def _market(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    options = group.get("instanceMarketOptions")
    if is_absent(options):
        return
    if is_absent(group.get("capacityReservation")):
        found = "instanceMarketOptions without capacityReservation: eksctl refuses the file"
        remedy = "add capacityReservation.capacityReservationTarget.capacityReservationID: cr-..."
        yield _found(manifest, (*path, "instanceMarketOptions"), found, remedy)
    market = text((mapping(options) or {}).get("marketType"))
    if market not in {None, "capacity-block"} and not is_placeholder(market or ""):
        found = f"{shown(market)}, and eksctl takes capacity-block alone"
        place = (*path, "instanceMarketOptions", "marketType")
        yield _found(manifest, place, found, "write capacity-block")


def _reservation(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    given = mapping(group.get("capacityReservation")) or {}
    both = ("capacityReservationPreference", "capacityReservationTarget")
    if not any(is_absent(given.get(key)) for key in both):
        found = "a preference and a target of reservations: eksctl refuses the file"
        place = (*path, "capacityReservation", both[0])
        yield _found(manifest, place, found, "remove the preference")


def _taints(manifest: Manifest, path: Path, taints: Json) -> Iterator[Finding]:
    """Judge taints in both forms: a list, and a mapping of a key to VALUE:EFFECT."""
    listed: list[tuple[Path, str | None]] = [
        ((*path, index, "effect"), text((mapping(each) or {}).get("effect")))
        for index, each in enumerate(items(taints) or [])
    ]
    if isinstance(taints, dict):
        written = [(key, text(each) or "") for key, each in taints.items()]
        listed += [((*path, key), each.rpartition(":")[2] or None) for key, each in written]
    for place, effect in listed:
        if effect is None or effect in _EFFECTS or is_placeholder(effect):
            continue
        plain = effect.replace("_", "").lower()
        meant = next((each for each in _EFFECTS if each.lower() == plain), " or ".join(_EFFECTS))
        found = f"{shown(effect)} is no effect of a taint: eksctl refuses the file"
        yield _found(manifest, place, found, f"write {meant}")


def _way_out(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    vpc = mapping(manifest.body.get("vpc")) or {}
    gateway = (mapping(vpc.get("nat")) or {}).get("gateway")
    # Subnets that exist have routes of their own; a private cluster has endpoints instead.
    endpoints = (mapping(manifest.body.get("privateCluster")) or {}).get("enabled")
    theirs = [vpc.get("id"), vpc.get("subnets"), group.get("subnets"), endpoints]
    private = group.get("privateNetworking") is True
    if gateway == "Disable" and private and all(map(is_absent, theirs)):
        found = "vpc.nat.gateway is Disable, and these nodes are private: they pull no image, and "
        found += "do not join"
        remedy = "write vpc.nat.gateway: Single, or privateCluster.enabled: true"
        yield _found(manifest, (*path, "privateNetworking"), found, remedy)
