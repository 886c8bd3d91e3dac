"""What a cluster file can get wrong although every value in it has the right type."""

import re
from collections.abc import Iterator
from datetime import date

from megatron_eks.catalog import pins
from megatron_eks.catalog.pricing import PriceList
from megatron_eks.catalog.regions import PARTITIONS, ZONE_LETTERS, ZONES_WITHOUT_EKS
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path, choices, warning
from megatron_eks.plan.ami_checks import check_ami_releases
from megatron_eks.plan.capacity_checks import check_capacity
from megatron_eks.plan.egress_checks import check_egress
from megatron_eks.plan.existing_checks import check_existing
from megatron_eks.plan.identity_checks import check_identities
from megatron_eks.plan.image_checks import check_images
from megatron_eks.plan.network_checks import check_access, check_network
from megatron_eks.plan.platform import OPERATOR_NAMESPACE, SYSTEM_NAMESPACE
from megatron_eks.plan.pool_checks import check_pools
from megatron_eks.plan.storage_checks import check_lustre

_EKS_ZONES = 2
_SUPPORT_WARNING_DAYS = 60
# Every service takes these, letters and digits of all scripts among them: \p{L} and \p{N} in IAM's
# and FSx's API references; some take more (AWS General Reference, "Tagging AWS resources").
_TAG_TEXT = re.compile(r"[\w.:/=+@-]([\w .:/=+@-]*[\w.:/=+@-])?")
_TAG_KEY_LENGTH, _TAG_VALUE_LENGTH = 128, 256
# A resource takes 50; names and Kubernetes' roles of subnets need some.
_MOST_TAGS = 40


def check_cluster(config: ClusterConfig, today: date) -> Iterator[Finding]:
    """Yield everything wrong with a cluster, errors and warnings."""
    yield from _version(config, today)
    yield from _region(config)
    yield from _zones(config)
    yield from check_access(config)
    yield from check_network(config)
    yield from check_existing(config)
    yield from check_egress(config, today)
    yield from check_pools(config)
    yield from check_ami_releases(config, today)
    yield from check_capacity(config, today)
    yield from check_lustre(config)
    yield from check_identities(config)
    yield from check_images(config)
    yield from _namespace(config)
    yield from _tags(config)
    yield from check_prices(config)


def _version(config: ClusterConfig, today: date) -> Iterator[Finding]:
    path: Path = ("kubernetes_version",)
    version = config.kubernetes_version
    if version not in pins.KUBERNETES_STANDARD_SUPPORT_ENDS:
        oldest = next(iter(pins.KUBERNETES_STANDARD_SUPPORT_ENDS))
        past = _is_before(version, oldest)
        found = (
            f"standard support of {version} is over: EKS takes six times the price, or has ended it"
            if past
            else f"unknown Kubernetes version {version!r}"
        )
        remedy = choices(version, pins.KUBERNETES_STANDARD_SUPPORT_ENDS)
        pinned = ", ".join(map(repr, pins.AMI_RELEASES))
        yield Finding(Code.NOT_ALLOWED, path, found, f"use {pinned}, which is pinned; {remedy}")
        return
    ends = pins.KUBERNETES_STANDARD_SUPPORT_ENDS[version]
    if ends and (ends - today).days < _SUPPORT_WARNING_DAYS:
        word = "ended" if ends < today else "ends"
        found = f"standard support of {version} {word} on {ends}; EKS then upgrades it by itself"
        remedy = "use a version that is supported for longer: " + ", ".join(
            known
            for known, end in pins.KUBERNETES_STANDARD_SUPPORT_ENDS.items()
            if end is None or end > ends
        )
        yield warning(Code.KUBERNETES_SUPPORT_ENDS, path, found, remedy)
    if not any(version in addon.versions for addon in pins.ADDONS):
        found = f"EKS chooses the add-ons of {version}, and AMIs where ami_release is not set"
        remedy = f"use {', '.join(map(repr, pins.AMI_RELEASES))} for pinned versions"
        yield warning(Code.UNPINNED_VERSION, path, found, remedy)


def _is_before(version: str, other: str) -> bool:
    """Tell whether a version such as 1.9 is older than another; False for any other text."""
    if not re.fullmatch(r"1\.\d{1,3}", version):
        return False
    return int(version.partition(".")[2]) < int(other.partition(".")[2])


def _region(config: ClusterConfig) -> Iterator[Finding]:
    partition = PARTITIONS.get(config.region)
    if partition is None:
        found = f"unknown or unsupported region {config.region!r}"
        yield Finding(Code.UNKNOWN_REGION, ("region",), found, choices(config.region, PARTITIONS))
        return
    for index, arn in enumerate(config.access.admin_role_arns):
        if arn.split(":")[1] != partition:
            found = f"a role of partition {arn.split(':')[1]!r} cannot act in {config.region}"
            path: Path = ("access", "admin_role_arns", index)
            yield Finding(Code.PARTITION, path, found, f"use arn:{partition}:iam::...")


def _places(config: ClusterConfig) -> Iterator[Finding]:
    """Yield zones of another region, and those where EKS takes no subnet."""
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
        path: Path = ("availability_zones", index)
        if zone[:-1] != config.region:
            found = f"{zone!r} is not in region {config.region!r}"
            yield Finding(
                Code.ZONE_NOT_IN_REGION, path, found, f"use zones such as {config.region}a"
            )
        elif zone[-1] not in ZONE_LETTERS.get(config.region, zone[-1]):
            found = f"{config.region} had no zone of this letter when its zones were last read"
            remedy = f"use one that ends with {', '.join(ZONE_LETTERS[config.region])}"
            yield warning(Code.UNKNOWN_ZONE, path, found, remedy)
        elif zone in ZONES_WITHOUT_EKS and config.existing_cluster is None:
            found = (
                f"{zone} is {ZONES_WITHOUT_EKS[zone]} in nearly all accounts, where EKS takes no "
                "subnet of a cluster"
            )
            remedy = "use another zone; `aws ec2 describe-availability-zones` prints their ids"
            yield warning(Code.ZONE_WITHOUT_EKS, path, found, remedy)


def _zones(config: ClusterConfig) -> Iterator[Finding]:
    zones = config.availability_zones
    if len(set(zones)) < _EKS_ZONES and config.existing_cluster is None:
        found = f"{len(set(zones))} zone"
        yield Finding(
            Code.TOO_FEW_ZONES, ("availability_zones",), found, "list two or three; EKS demands two"
        )
    yield from _places(config)
    for index, zone in enumerate(zones):
        if zone in zones[:index]:
            found = f"{zone!r} is listed twice"
            yield Finding(
                Code.DUPLICATE_NAME, ("availability_zones", index), found, "list each zone once"
            )
    wanted: list[tuple[Path, str | None]] = [
        (("gpu_pools", index, "availability_zone"), pool.availability_zone)
        for index, pool in enumerate(config.gpu_pools)
    ]
    wanted.append(
        (("storage", "lustre", "availability_zone"), config.storage.lustre.availability_zone)
    )
    for path, chosen in wanted:
        if chosen and chosen not in zones:
            found = f"{chosen!r} is not one of the cluster's zones"
            yield Finding(
                Code.ZONE_NOT_LISTED,
                path,
                found,
                f"{choices(chosen, zones)}; or add it to availability_zones",
            )


def _namespace(config: ClusterConfig) -> Iterator[Finding]:
    name = config.platform.namespace
    if name in {SYSTEM_NAMESPACE, OPERATOR_NAMESPACE, "default"} or name.startswith("kube-"):
        found = f"{name} belongs to Kubernetes or to this project's own parts"
        remedy = "use a namespace of your own, such as megatron-workshop"
        yield Finding(Code.NAMESPACE, ("platform", "namespace"), found, remedy)


def _tags(config: ClusterConfig) -> Iterator[Finding]:
    if len(config.tags) > _MOST_TAGS:
        found, remedy = f"{len(config.tags)} tags", f"use at most {_MOST_TAGS}; AWS takes 50"
        yield Finding(Code.TAG, ("tags",), found, remedy)
    lower = [key.lower() for key in config.tags]
    for index, key in enumerate(config.tags):
        if lower[index] in lower[:index]:
            found = f"{key!r} differs from another key in capitals only, which IAM does not take"
            yield Finding(Code.TAG, ("tags", key), found, "use one of them")
    for key, value in config.tags.items():
        if key.lower().startswith("aws:"):
            yield Finding(
                Code.TAG,
                ("tags", key),
                "tags that start with 'aws:' belong to AWS",
                "use another key",
            )
        elif key.lower() == "name" or key.startswith("kubernetes.io/"):
            found = f"{key!r} is set by this project on each resource"
            yield Finding(Code.TAG, ("tags", key), found, "use another key")
        elif not key or not value:
            # CloudFormation's schemas of AWS::ECR::Repository, AWS::EKS::Addon and others: at least
            # one character, unlike the services themselves.
            found = "a tag without a value" if key else "a tag without a key"
            remedy = f"give it a {'value' if key else 'key'}, or remove it"
            yield Finding(Code.TAG, ("tags", key), found, remedy)
        elif not _TAG_TEXT.fullmatch(key) or not _TAG_TEXT.fullmatch(value):
            found = "a key or value with signs that AWS does not take"
            remedy = "use letters, digits, spaces and _ . : / = + - @"
            yield Finding(Code.TAG, ("tags", key), found, remedy)
        elif len(key) > _TAG_KEY_LENGTH or len(value) > _TAG_VALUE_LENGTH:
            found = f"a key of {len(key)} and a value of {len(value)} characters"
            yield Finding(
                Code.TAG, ("tags", key), found, "use at most 128 for the key and 256 for the value"
            )


# List prices, as in `catalog/pricing.py`: discounts take two thirds at most, and no region costs
# twice what the cheapest does; a price of a day or a month is 24 or 730 times the list's.
_MOST, _LEAST = 5, 0.02
_LISTED = PriceList("us-east-1")
_LUSTRE_MONTH = 0.60
"""Of a GiB at the highest throughput."""


def check_prices(config: ClusterConfig) -> Iterator[Finding]:
    """Yield prices of what no pool has, and those that are of another unit."""
    used = {pool.instance_type for pool in config.gpu_pools} | {config.system_nodes.instance_type}
    prices = config.prices
    for name, price in prices.instance_hour.items():
        path: Path = ("prices", "instance_hour", name)
        if name not in used:
            found = f"no pool has nodes of type {name!r}"
            yield Finding(Code.NO_MEANING, path, found, choices(name, sorted(used)))
        else:
            yield from _unit(path, price, _LISTED.instance(name), "USD an hour of one node")
    hours = {
        "control_plane_hour": _LISTED.control_plane,
        "nat_hour": _LISTED.nat,
        "endpoint_hour": _LISTED.endpoint,
    }
    for key, listed in hours.items():
        yield from _unit(("prices", key), getattr(prices, key), listed, "USD an hour of one")
    path = ("prices", "lustre_gib_month")
    yield from _unit(path, prices.lustre_gib_month, _LUSTRE_MONTH, "USD a month of one GiB")


def _unit(path: Path, price: float | None, listed: float | None, unit: str) -> Iterator[Finding]:
    if not price or not listed or _LEAST * listed <= price <= _MOST * listed:
        return
    found = f"{price:g}, and the list has {listed:g}"
    yield warning(Code.OWN_PRICE, path, found, f"write {unit}")
