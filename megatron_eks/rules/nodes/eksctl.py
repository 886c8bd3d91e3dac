"""Rules over cluster files of eksctl: their groups of nodes, zones and versions."""

import re
from collections.abc import Iterator, Mapping

from megatron_eks.catalog.instances import INSTANCES, InstanceType
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.clusters import OLDEST_MINOR, past_support
from megatron_eks.rules.one_of_two import refused_label
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_GROUPS = ("managedNodeGroups", "nodeGroups")
_VERSION = re.compile(r"1\.[1-9][0-9]")
# EKS User Guide, "Upgrade from Amazon Linux 2"; eksctl, pkg/apis/eksctl.io/v1alpha5/defaults.go.
_LAST_OF_AL2 = 32
# AWS General Reference, "Regions": us-east-2, us-gov-west-1, ap-southeast-7.
REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}")
_GIB_OF_AN_IMAGE = 80


def cluster_files(manifest: Manifest) -> Iterator[Finding]:
    """Require of eksctl's file what eksctl and EC2 take.

    eksctl, "Config file schema": it refuses a version that YAML has read as a number; a region's
    zones bear its name.
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    metadata = mapping(manifest.body.get("metadata")) or {}
    version = metadata.get("version")
    if isinstance(version, int | float):
        found = f"{version} as a number, of which 1.30 becomes 1.3: eksctl wants a text"
        yield _found(manifest, ("metadata", "version"), found, f'write "{version:.2f}"')
    said = text(version) or "latest"
    if not (_VERSION.fullmatch(said) or said in {"auto", "latest"} or is_placeholder(said)):
        found = f"{shown(said)} is no version of Kubernetes on EKS"
        yield _found(manifest, ("metadata", "version"), found, 'write it like "1.35"')
    elif _minor(said) and _minor(said) < OLDEST_MINOR:
        found = f"EKS no longer runs Kubernetes {said}: eksctl refuses the file"
        yield _found(manifest, ("metadata", "version"), found, f"use 1.{OLDEST_MINOR} or later")
    elif late := past_support(said):
        yield _found(manifest, ("metadata", "version"), *late, Level.WARNING)
    yield from _zones(manifest, ("availabilityZones",), manifest.body, text(metadata.get("region")))
    yield from _identities(manifest)
    names: set[str] = set()
    for path, group in _groups(manifest):
        yield from _sizes(manifest, path, group)
        where = text(metadata.get("region"))
        yield from _zones(manifest, (*path, "availabilityZones"), group, where)
        reserved = (mapping(group.get("capacityReservation")) or {}).get(
            "capacityReservationTarget"
        )
        old = group.get("amiFamily") == "AmazonLinux2" and is_absent(group.get("ami"))
        if old and _minor(said) > _LAST_OF_AL2:
            found = f"AmazonLinux2, of which Kubernetes {said} has no AMI: eksctl refuses it"
            yield _found(manifest, (*path, "amiFamily"), found, "write AmazonLinux2023")
        if group.get("spot") is True and not is_absent(reserved):
            found = "spot, and spot instances use no reservation: EC2 refuses it"
            yield _found(manifest, (*path, "spot"), found, "remove one of them")
        name = text(group.get("name"))
        if name is not None and name in names:
            found = f"a second group {shown(name)}: eksctl refuses the file"
            yield _found(manifest, (*path, "name"), found, "give it another name")
        names.add(name or "")
        yield from _labels(manifest, path, group)


def _found(
    manifest: Manifest, path: Path, found: str, remedy: str, level: Level = Level.ERROR
) -> Finding:
    return manifest.find(Code.EKSCTL, path, found, remedy, level)


def _minor(version: str) -> int:
    """Return the second part of a version, 0 where it is none."""
    return int(version.partition(".")[2]) if _VERSION.fullmatch(version) else 0


def _groups(manifest: Manifest) -> Iterator[tuple[Path, dict[str, Json]]]:
    for key in _GROUPS:
        for index, value in enumerate(items(manifest.body.get(key)) or []):
            yield (key, index), mapping(value) or {}


def _sizes(manifest: Manifest, path: Path, group: Mapping[str, Json]) -> Iterator[Finding]:
    least, wanted, most = (
        number(group.get(key)) for key in ("minSize", "desiredCapacity", "maxSize")
    )
    for key, one, other, larger in (
        ("desiredCapacity", wanted, most, "maxSize"),
        ("minSize", least, most, "maxSize"),
        ("minSize", least, wanted, "desiredCapacity"),
    ):
        if one is not None and other is not None and one > other:
            found = f"{key} {one}, and {larger} {other}: the group is refused"
            yield _found(manifest, (*path, key), found, f"write at most {other}")


def _labels(manifest: Manifest, path: Path, group: Mapping[str, Json]) -> Iterator[Finding]:
    """Refuse labels that EKS does not take; nodes of other groups get theirs from the kubelet."""
    if path[0] != "managedNodeGroups":
        return
    for key, value in (mapping(group.get("labels")) or {}).items():
        if refused := refused_label(key, text(value)):
            yield _found(manifest, (*path, "labels", key), *refused)


def _zones(
    manifest: Manifest, path: Path, body: Mapping[str, Json], region: str | None
) -> Iterator[Finding]:
    for index, value in enumerate(items(body.get("availabilityZones")) or []):
        zone = text(value)
        if region is None or zone is None or is_placeholder(f"{region}{zone}"):
            continue
        # What is no region is said once, there.
        if not REGION.fullmatch(region):
            return
        if not zone.startswith(region):
            found = f"{shown(zone)} is no zone of {region}"
            yield _found(manifest, (*path, index), found, f"write one like {region}a")


def _identities(manifest: Manifest) -> Iterator[Finding]:
    """Require the identity provider that service accounts with roles are bound by."""
    iam = mapping(manifest.body.get("iam")) or {}
    accounts = items(iam.get("serviceAccounts")) or []
    if accounts and iam.get("withOIDC") is not True:
        found = "roles for service accounts without withOIDC: eksctl refuses the file"
        yield _found(manifest, ("iam", "withOIDC"), found, "write withOIDC: true")


def public_groups(manifest: Manifest) -> Iterator[Finding]:
    """Warn of nodes with several cards for EFA in public subnets, where eksctl puts them by itself.

    EC2 User Guide, "Elastic IP addresses and network interfaces": an instance with several
    interfaces is given no public address at its start; eksctl, "VPC networking", privateNetworking,
    and pkg/cfn/builder/network_interfaces.go, which leaves the address to the subnet. Without one,
    the node reaches nothing outside the VPC (terraform-aws-eks issue 3533).
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    for path, group in _groups(manifest):
        types = [text(group.get("instanceType"))]
        types += [text(each) for each in items(group.get("instanceTypes")) or []]
        several = [
            name for name in types if name in INSTANCES and INSTANCES[name].network_cards > 1
        ]
        # Named subnets may well be private ones.
        said = group.get("privateNetworking")
        public = (is_absent(said) or said is False) and is_absent(group.get("subnets"))
        if several and public and group.get("efaEnabled") is True:
            found = f"a public subnet, and {several[0]} has several interfaces with EFA: it gets "
            found += "no public address, and does not join"
            remedy = "write privateNetworking: true"
            where = (*path, "privateNetworking")
            yield _found(manifest, where, found, remedy, Level.WARNING)


def efa_groups(manifest: Manifest) -> Iterator[Finding]:
    """Require of a group with EFA one zone and types that have it.

    EC2 User Guide, "Elastic Fabric Adapter": it does not leave its zone; eksctl,
    pkg/apis/eksctl.io/v1alpha5/validation.go: more than one zone or subnet is refused;
    pkg/vpc/vpc.go, SelectNodeGroupSubnets: of the cluster's it takes one, which may be in the zone
    without the reservation.
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    subnets = mapping((mapping(manifest.body.get("vpc")) or {}).get("subnets")) or {}
    several_zones = all(len(mapping(each) or {}) > 1 for each in subnets.values())
    for path, group in _groups(manifest):
        types = [text(group.get("instanceType"))]
        types += [text(each) for each in items(group.get("instanceTypes")) or []]
        known = [INSTANCES[name] for name in types if name in INSTANCES]
        if group.get("efaEnabled") is not True:
            whole = [each for each in known if each.efa_interfaces and each.nvlink_gb_s]
            several = (
                number(group.get("maxSize")) or number(group.get("desiredCapacity")) or 0
            ) > 1
            # A key that is nearly this one has a finding of its own.
            said = any("efa" in key.lower() for key, value in group.items() if value is not None)
            plain = not said and is_absent(group.get("launchTemplate"))
            if whole and several and plain and path[0] == "managedNodeGroups":
                found = f"{whole[0].name} without efaEnabled: nodes talk over TCP"
                remedy = "write efaEnabled: true, if jobs span nodes"
                yield _found(manifest, (*path, "efaEnabled"), found, remedy, Level.WARNING)
            continue
        for each in known:
            if not each.efa_interfaces:
                found = f"efaEnabled, and {each.name} has no EFA: eksctl refuses it"
                yield _found(manifest, (*path, "efaEnabled"), found, "take another type, or false")
        yield from _efa_zones(manifest, path, group, known, several_zones=several_zones)
        size = number(group.get("volumeSize"))
        if size is not None and size < _GIB_OF_AN_IMAGE:
            found = f"{size} GiB, and images for training and their layers take more"
            yield _found(manifest, (*path, "volumeSize"), found, "write 200 or more", Level.WARNING)


def _efa_zones(
    manifest: Manifest,
    path: Path,
    group: Mapping[str, Json],
    known: list[InstanceType],
    *,
    several_zones: bool,
) -> Iterator[Finding]:
    zones = items(group.get("availabilityZones")) or items(group.get("subnets")) or []
    key = "availabilityZones" if group.get("availabilityZones") else "subnets"
    remedy = "name the one zone that is meant"
    if len(zones) > 1:
        found = f"{len(zones)} {'zones' if key != 'subnets' else key}, and EFA stays in one: "
        found += "eksctl refuses the file"
        yield _found(manifest, (*path, key), found, remedy)
    elif not zones and several_zones and (_reserved(group) or _is_rare(known)):
        found = "a reservation without its zone: eksctl puts nodes with EFA in any one"
        if not _reserved(group):
            found = f"no zone: eksctl puts nodes with EFA in any one, and {known[0].name} is "
            found += "in some alone"
        where = (*path, "availabilityZones")
        yield _found(manifest, where, found, remedy, Level.WARNING)


def _reserved(group: Mapping[str, Json]) -> bool:
    return not is_absent(group.get("capacityReservation"))


def _is_rare(types: list[InstanceType]) -> bool:
    """Tell types that EC2 has in some zones of a region only: whole nodes of GPUs."""
    return bool(types) and all(each.nvlink_gb_s for each in types)
