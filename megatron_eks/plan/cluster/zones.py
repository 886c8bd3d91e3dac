"""The region and the availability zones of a cluster."""

import re

from megatron_eks.catalog.regions import PARTITIONS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, choices
from megatron_eks.plan.cluster.network import check_listed_once

_EKS_ZONES = 2

# Every service takes these, letters and digits of all scripts among them: \p{L} and \p{N} in IAM's
# and FSx's API references; some take more (AWS General Reference, "Tagging AWS resources").
_TAG_TEXT = re.compile(r"[\w.:/=+@-]([\w .:/=+@-]*[\w.:/=+@-])?")
_TAG_KEY_LENGTH, _TAG_VALUE_LENGTH = 128, 256
# A resource takes 50; names and Kubernetes' roles of subnets need some.
_MOST_TAGS = 40


def check_region(config: ClusterConfig) -> Findings:
    """Yield an unknown region, and administrators of another partition."""
    if config.region not in PARTITIONS:
        found = f"unknown or unsupported region {config.region!r}"
        yield Finding(Code.UNKNOWN_REGION, ("region",), found, choices(config.region, PARTITIONS))
        return
    for index, arn in enumerate(config.access.admin_role_arns):
        yield from check_partition(("access", "admin_role_arns", index), arn, config.region)


def _places(config: ClusterConfig) -> Findings:
    zones = config.availability_zones
    (elsewhere, *others) = {zone[:-1] for zone in zones}
    if config.region not in PARTITIONS:
        return
    if not others and elsewhere != config.region:
        found = f"{', '.join(zones)}: none is in region {config.region!r}"
        remedy = f"use zones such as {config.region}a, or region: {elsewhere}"
        yield Finding(Code.ZONE_NOT_IN_REGION, ("availability_zones",), found, remedy)
        return
    for index, zone in enumerate(zones):
        if zone[:-1] != config.region:
            found = f"{zone!r} is not in region {config.region!r}"
            remedy = f"use zones such as {config.region}a"
            yield Finding(Code.ZONE_NOT_IN_REGION, ("availability_zones", index), found, remedy)


def check_zones(config: ClusterConfig) -> Findings:
    """Yield zones that the region does not have, or the cluster does not list."""
    zones = config.availability_zones
    if len(set(zones)) < _EKS_ZONES and config.existing_cluster is None:
        found, remedy = f"{len(set(zones))} zone", "list two or three; EKS demands two"
        yield Finding(Code.TOO_FEW_ZONES, ("availability_zones",), found, remedy)
    yield from _places(config)
    yield from check_listed_once(("availability_zones",), zones, "list each zone once")
    wanted: dict[Path, str | None] = {
        ("gpu_pools", index, "availability_zone"): pool.availability_zone
        for index, pool in enumerate(config.gpu_pools)
    }
    wanted["storage", "lustre", "availability_zone"] = config.storage.lustre.availability_zone
    for path, chosen in wanted.items():
        if chosen and chosen not in zones:
            found = f"{chosen!r} is not one of the cluster's zones"
            yield Finding(Code.ZONE_NOT_LISTED, path, found, not_listed(chosen, config))


def not_listed(zone: str, config: ClusterConfig) -> str:
    """Say what to do about a zone that the cluster does not list, and may be another region's."""
    known = choices(zone, config.availability_zones)
    return f"{known}; or add it to availability_zones" if zone.startswith(config.region) else known


def check_partition(path: Path, arn: str, region: str) -> Findings:
    """Yield an ARN of another partition than the region's."""
    partition, theirs = PARTITIONS.get(region), arn.split(":")[1]
    if partition not in {None, theirs}:
        found = f"an ARN of partition {theirs!r} names nothing in {region}"
        yield Finding(Code.PARTITION, path, found, f"use arn:{partition}:...")


def check_arn_region(path: Path, arn: str, region: str, thing: str, effect: str) -> Findings:
    """Yield an ARN of another partition or region; `effect` says what the thing then does."""
    yield from check_partition(path, arn, region)
    if (theirs := arn.split(":")[3]) != region:
        found = f"a {thing} of {theirs} {effect} in {region}"
        yield Finding(Code.ANOTHER_REGION, path, found, f"use a {thing} of {region}")


def check_tags(config: ClusterConfig) -> Findings:
    """Yield tags that cannot be made."""
    if len(config.tags) > _MOST_TAGS:
        found, remedy = f"{len(config.tags)} tags", f"use at most {_MOST_TAGS}; AWS takes 50"
        yield Finding(Code.TAG, ("tags",), found, remedy)
    lower = [key.lower() for key in config.tags]
    for index, key in enumerate(config.tags):
        if lower[index] in lower[:index]:
            found = f"{key!r} differs from another key in capitals only, which IAM does not take"
            yield Finding(Code.TAG, ("tags", key), found, "use one of them")
    for key, value in config.tags.items():
        if problem := _tag(key, value):
            yield Finding(Code.TAG, ("tags", key), *problem)


def _tag(key: str, value: str) -> tuple[str, str] | None:
    if key.lower().startswith("aws:"):
        return "tags that start with 'aws:' belong to AWS", "use another key"
    if key.lower() == "name" or key.startswith("kubernetes.io/"):
        return f"{key!r} is set by this project on each resource", "use another key"
    if not key or not value:
        # CloudFormation's schemas of AWS::ECR::Repository, AWS::EKS::Addon and others: at least
        # one character, unlike the services themselves.
        missing = "value" if key else "key"
        return f"a tag without a {missing}", f"give it a {missing}, or remove it"
    if not _TAG_TEXT.fullmatch(key) or not _TAG_TEXT.fullmatch(value):
        remedy = "use letters, digits, spaces and _ . : / = + - @"
        return "a key or value with signs that AWS does not take", remedy
    if len(key) > _TAG_KEY_LENGTH or len(value) > _TAG_VALUE_LENGTH:
        found = f"a key of {len(key)} and a value of {len(value)} characters"
        return found, "use at most 128 for the key and 256 for the value"
    return None
