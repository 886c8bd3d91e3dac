"""The Kubernetes version of a cluster, and the AMI releases of its nodes."""

import re
from datetime import date, timedelta

from megatron_eks.catalog import pins
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path, choices, warning

_SUPPORT_WARNING_DAYS = 60

# EKS User Guide, "Kubernetes release calendar": a version has 14 months of standard support; its
# first AMIs come weeks before.
_BEFORE_END = timedelta(days=16 * 31)


def check_version(config: ClusterConfig, today: date) -> Findings:
    """Yield a version that EKS does not support, or not for long."""
    path: Path = ("kubernetes_version",)
    version = config.kubernetes_version
    if version not in pins.KUBERNETES_STANDARD_SUPPORT_ENDS:
        found = f"unknown Kubernetes version {version!r}"
        if _is_before(version, next(iter(pins.KUBERNETES_STANDARD_SUPPORT_ENDS))):
            found = f"standard support of {version} is over: EKS takes six times the price, if any"
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


def check_ami_releases(config: ClusterConfig, today: date) -> Findings:
    """Yield releases that AWS does not have or that nodes must not run, and one that is missing."""
    version = config.kubernetes_version
    releases: dict[Path, str | None] = {
        ("gpu_pools", index, "ami_release"): pool.ami_release
        for index, pool in enumerate(config.gpu_pools)
    }
    releases["system_nodes", "ami_release"] = config.system_nodes.ami_release
    missing = [path for path, release in releases.items() if release is None]
    command = pins.newest_release_command(config.region, version)
    pinned = pins.AMI_RELEASES.get(version)
    form = f"null for {pinned}" if pinned else f"{version}.PATCH-YYYYMMDD"
    for path, release in releases.items():
        if release is not None and (found := _wrong(release, version, today)):
            remedy = f"use {form}, or what this prints: {command}"
            yield Finding(Code.AMI_RELEASE, path, found, remedy)
    known = version in pins.KUBERNETES_STANDARD_SUPPORT_ENDS and version not in pins.AMI_RELEASES
    if known and missing and config.existing_cluster is None:
        for bad in pins.bad_releases(version):
            found = f"no AMI release is pinned: with those of {bad.since} to {bad.before} {bad.why}"
            remedy = f"set ami_release of system_nodes and each pool to what this prints: {command}"
            remedy += "; or use another kubernetes_version"
            yield Finding(Code.AMI_RELEASE, missing[0], found, remedy)


def _wrong(release: str, version: str, today: date) -> str | None:
    day = release.rpartition("-")[2]
    if not re.fullmatch(re.escape(version) + r"\.\d+-\d{8}", release):
        return f"{release!r} is not an AMI release of Kubernetes {version}"
    try:
        released = date(int(day[:4]), int(day[4:6]), int(day[6:]))
    except ValueError:
        return f"{release!r} ends with no day of the calendar"
    ends = pins.KUBERNETES_STANDARD_SUPPORT_ENDS.get(version)
    if ends is not None and released < ends - _BEFORE_END:
        return f"{release} is older than Kubernetes {version}"
    if released > today:
        return f"{release} is of a day to come"
    bad = next(pins.bad_releases(release), None)
    return f"nodes of {release} are not safe: {bad.why}" if bad else None
