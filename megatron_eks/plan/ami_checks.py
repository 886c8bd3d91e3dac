"""What a cluster file can get wrong about the AMI releases of its nodes."""

import re
from collections.abc import Iterator
from datetime import date, timedelta

from megatron_eks.catalog import pins
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path

# EKS User Guide, "Kubernetes release calendar": a version has 14 months of standard support; its
# first AMIs come weeks before.
_BEFORE_END = timedelta(days=16 * 31)


def check_ami_releases(config: ClusterConfig, today: date) -> Iterator[Finding]:
    """Yield releases that AWS does not have or that nodes must not run, and one that is missing."""
    version = config.kubernetes_version
    releases: dict[Path, str | None] = {
        ("gpu_pools", index, "ami_release"): pool.ami_release
        for index, pool in enumerate(config.gpu_pools)
    }
    releases["system_nodes", "ami_release"] = config.system_nodes.ami_release
    missing = [path for path, release in releases.items() if release is None]
    command = pins.newest_release_command(config.region, version)
    for path, release in releases.items():
        if release is not None:
            found = _wrong(release, version, today)
            pinned = pins.AMI_RELEASES.get(version)
            remedy = f"use {version}.PATCH-YYYYMMDD, the newest is what this prints: {command}"
            if pinned is not None:
                remedy = f"use null for {pinned}, or what this prints: {command}"
            if found:
                yield Finding(Code.AMI_RELEASE, path, found, remedy)
    known = version in pins.KUBERNETES_STANDARD_SUPPORT_ENDS and version not in pins.AMI_RELEASES
    if known and missing and config.existing_cluster is None:
        for bad in pins.bad_releases(version):
            found = (
                f"no AMI release of {version} is pinned, and with those of {bad.since} and later, "
                f"before {bad.before}, {bad.why}"
            )
            remedy = (
                "set ami_release of system_nodes and of each pool to what this prints: "
                f"{command}; or use another kubernetes_version"
            )
            yield Finding(Code.AMI_RELEASE, missing[0], found, remedy)


def _wrong(release: str, version: str, today: date) -> str | None:
    """Say what is wrong with a release; None: nothing."""
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
