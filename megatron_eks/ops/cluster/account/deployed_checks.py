"""Checks of what is deployed already, as AWS describes it."""

import math
import re
from collections.abc import Iterator
from datetime import timedelta

from megatron_eks.catalog.pins import bad_releases, newest_release_command
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.ops.checks import in_aws
from megatron_eks.ops.cluster.account.facts import EksCluster, Subject
from megatron_eks.ops.jobs.job_access import REMEDY
from megatron_eks.plan.cluster.cluster import EVENT_TTL

# Deploying a new version and moving jobs takes planning.
_SUPPORT_SOON = timedelta(days=60)
_USABLE_FILE_SYSTEM = frozenset({"AVAILABLE", "UPDATING"})
_DEPLOY = "run: meks deploy"


def support(subject: Subject) -> Iterator[Finding]:
    """Compare what EKS says of the version with today, and with what the plan sets."""
    version, ends = subject.plan.kubernetes_version, subject.facts.support_ends
    path: Path = ("kubernetes_version",)
    if not subject.facts.offers_version:
        found = f"EKS in {subject.plan.region} offers no {version}"
        remedy = "take one of: aws eks describe-cluster-versions"
        yield Finding(Code.SUPPORT_ENDS, path, found, remedy)
    elif ends is not None and ends - subject.now.date() < _SUPPORT_SOON:
        gone = ends < subject.now.date()
        verb = "ended" if gone else "ends"
        found = f"standard support of {version} {verb} on {ends}"
        remedy = "plan the next version; extended support costs six times as much an hour"
        yield Finding(Code.SUPPORT_ENDS, path, found, remedy, Level.WARNING)
    # Which bounds the time has that events live, no document of EKS says.
    least, most = (_seconds(each) for each in subject.facts.event_ttl)
    if "Cluster" in subject.plan.stacks and not (
        (least or 0) <= (_seconds(EVENT_TTL) or 0) <= (most or math.inf)
    ):
        found = f"events live for {EVENT_TTL}, EKS takes {' to '.join(subject.facts.event_ttl)}"
        remedy = "set EVENT_TTL in megatron_eks/plan/cluster/cluster.py to one of these"
        yield Finding(Code.EVENT_TTL, path, found, remedy)


def _seconds(duration: str) -> float | None:
    """Read a duration of a single unit; None where it is none."""
    found = re.fullmatch(r"(\d+)([smh])", duration)
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else None


def cluster(subject: Subject) -> Iterator[Finding]:
    """Look at the state of the EKS cluster."""
    name, found = subject.plan.eks_name, subject.facts.cluster
    if found is None:
        if "Cluster" not in subject.plan.stacks:
            text = f"there is no EKS cluster {name} in {subject.plan.region}"
            yield Finding(Code.BROUGHT_MISSING, ("existing_cluster",), text, "correct it")
        return
    path: Path = ("eks", name)
    if found.status != "ACTIVE":
        text = f"it is {found.status}"
        remedy = "wait until it is ACTIVE: what changes it is refused meanwhile"
        level = Level.WARNING if found.status == "UPDATING" else Level.ERROR
        yield in_aws(Code.CLUSTER_STATE, path, text, remedy, level)
    for issue in found.issues:
        yield in_aws(Code.CLUSTER_STATE, path, issue, "see to it, or open the EKS console")
    if found.version != subject.plan.kubernetes_version:
        text = f"it runs {found.version}, and the file says {subject.plan.kubernetes_version}"
        yield in_aws(Code.CLUSTER_STATE, path, text, "correct the file, or " + _DEPLOY)


def endpoint(subject: Subject) -> Iterator[Finding]:
    """Say why the API server does not answer from here."""
    found = subject.facts.cluster
    if found is None or found.unreachable is None:
        return
    remedy = _way_in(found, subject.facts.own_address)
    path: Path = ("eks", subject.plan.eks_name, "endpoint")
    yield in_aws(Code.ENDPOINT_UNREACHABLE, path, found.unreachable, remedy)


def _way_in(cluster: EksCluster, address: str | None) -> str:
    if not cluster.public:
        return "the endpoint is private: go the way that access.private_route names"
    ranges = ", ".join(cluster.public_cidrs)
    here = f"you seem to be {address.strip()}; " if address else ""
    return f"{here}it admits {ranges}: add your address to access.public_cidrs and meks deploy"


def addons(subject: Subject) -> Iterator[Finding]:
    """Compare add-ons with those of the plan."""
    if subject.facts.cluster is None:
        return
    for planned in subject.plan.addons:
        if planned.name not in subject.facts.addons:
            continue
        path: Path = ("eks", subject.plan.eks_name, planned.name)
        found = subject.facts.addons[planned.name]
        if found is None:
            yield in_aws(Code.ADDON_STATE, path, "not installed", _DEPLOY)
            continue
        if found.status not in {"ACTIVE", "UPDATING"}:
            text = "; ".join((f"it is {found.status}", *found.issues))
            yield in_aws(Code.ADDON_STATE, path, text, "see to that, then " + _DEPLOY)
        if planned.version is not None and found.version != planned.version:
            text = f"it is {found.version}, and this release has {planned.version}"
            yield in_aws(Code.ADDON_STATE, path, text, _DEPLOY, Level.WARNING)


def node_groups(subject: Subject) -> Iterator[Finding]:
    """Look at the pools' node groups."""
    if subject.facts.cluster is None:
        return
    for name, found in subject.facts.node_groups.items():
        path: Path = ("eks", subject.plan.eks_name, name)
        if found is None:
            yield in_aws(Code.NODE_GROUP_STATE, path, "there is no such node group", _DEPLOY)
            continue
        for code, message in found.issues:
            remedy = "see to it; then meks scale"
            yield in_aws(Code.NODE_GROUP_STATE, path, f"{code}: {message}", remedy)
        if found.status not in {"ACTIVE", "UPDATING"} and not found.issues:
            text = f"it is {found.status}"
            yield in_aws(Code.NODE_GROUP_STATE, path, text, "look at it in the EKS console")
        bad = next(bad_releases(found.ami_release), None) if found.ami_release else None
        if bad:
            text = f"its nodes run {found.ami_release}: {bad.why}"
            command = newest_release_command(subject.plan.region, subject.plan.kubernetes_version)
            remedy = f"set ami_release to what this prints, then meks deploy: {command}"
            yield in_aws(Code.NODE_GROUP_STATE, path, text, remedy)


def file_systems(subject: Subject) -> Iterator[Finding]:
    """Compare file systems with their plan."""
    planned = {
        lustre.id: (lustre, plan)
        for lustre, plan in zip(
            subject.outputs.file_systems, subject.plan.storage.file_systems, strict=True
        )
    }
    for number, found in subject.facts.file_systems.items():
        path: Path = ("fsx", number)
        if found is None:
            text = f"there is none in {subject.plan.region}"
            remedy = "write the outputs anew: meks outputs; or correct storage.lustre.existing"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, remedy)
            continue
        if found.kind != "LUSTRE":
            text = f"it is an FSx file system of type {found.kind}, and pods mount Lustre"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, "name one of Lustre")
            continue
        if found.state not in _USABLE_FILE_SYSTEM:
            text = f"it is {found.state}" + (f": {found.reason}" if found.reason else "")
            remedy = "see to it in the FSx console; pods cannot rely on it"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, remedy)
        lustre, wanted = planned[number]
        known = (lustre.dns_name, lustre.mount_name)
        if found.mount_name and (found.dns_name, found.mount_name) != known:
            text = f"it is {found.dns_name} with mount name {found.mount_name}"
            remedy = "write that: meks outputs, or storage.lustre.existing"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, remedy)
        if found.capacity_gib < wanted.capacity_gib:
            text = f"it has {found.capacity_gib} GiB, and the file says {wanted.capacity_gib}"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, _DEPLOY, Level.WARNING)
        yield from _zone(subject, found.subnets, wanted.zone, path)


def _zone(subject: Subject, subnets: tuple[str, ...], zone: str, path: Path) -> Iterator[Finding]:
    for number in subnets:
        subnet = subject.facts.subnets.get(number)
        if subnet is not None and subnet.zone != zone:
            text = f"it is in {subnet.zone}, and nodes in {zone} pay for each byte between them"
            remedy = "use a pool in its zone, or a file system in the pool's"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, remedy, Level.WARNING)


def images(subject: Subject) -> Iterator[Finding]:
    """Look for the images that jobs would pull."""
    for uri, there in subject.facts.images.items():
        if not there:
            remedy = "build it: meks build"
            yield in_aws(Code.IMAGE_MISSING, ("ecr",), f"there is no {uri}", remedy)
    for name, image in subject.outputs.images.items():
        if image.preview and subject.facts.cluster is not None:
            found = f"the image {name} is known by no digest, so its jobs cannot be applied"
            yield in_aws(Code.IMAGE_MISSING, ("ecr",), found, "meks build", Level.WARNING)


def job_access(subject: Subject) -> Iterator[Finding]:
    """Name what job files say that the deployed role does not allow."""
    for uri in subject.facts.out_of_reach:
        found = f"the role of the jobs was deployed before a job file named {uri}"
        yield in_aws(Code.JOB_ROLE, ("iam", "JobRole"), found, REMEDY)
