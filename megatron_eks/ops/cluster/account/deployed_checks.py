"""Checks of what is deployed already, as AWS describes it."""

import math
import re
from collections.abc import Iterator

from megatron_eks.catalog.pins import bad_releases, newest_release_command
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.ops.aws.session import if_there
from megatron_eks.ops.checks import in_aws
from megatron_eks.ops.cluster.account.account import Account, Described
from megatron_eks.ops.cluster.build_records import is_there
from megatron_eks.ops.jobs.submission import REMEDY, lacking
from megatron_eks.plan.cluster.cluster import EVENT_TTL

_USABLE_FILE_SYSTEM = frozenset({"AVAILABLE", "UPDATING"})
_DEPLOY = "run: meks deploy"


def support(account: Account) -> Iterator[Finding]:
    """Ask whether EKS has the version, and takes what the plan sets for it."""
    version, region = account.plan.kubernetes_version, account.plan.region
    path: Path = ("kubernetes_version",)
    answer = account.client("eks").describe_cluster_versions(clusterVersions=[version])
    if not answer["clusterVersions"]:
        remedy = "take one of: aws eks describe-cluster-versions"
        yield Finding(Code.SUPPORT_ENDS, path, f"EKS in {region} offers no {version}", remedy)
        return
    # Which bounds the time has that events live, no document of EKS says.
    found = answer["clusterVersions"][0].get("controlPlaneComponentConfig", {})
    server = found.get("kubeApiServerConfig", {})
    bounds = server.get("eventTtl", {}).get("constraints", {})
    least, most = (str(bounds.get(name, "")) for name in ("min", "max"))
    if "Cluster" in account.plan.stacks and not (
        (_seconds(least) or 0) <= (_seconds(EVENT_TTL) or 0) <= (_seconds(most) or math.inf)
    ):
        text = f"events live for {EVENT_TTL}, EKS takes {least} to {most}"
        remedy = "set EVENT_TTL in megatron_eks/plan/cluster/cluster.py to one of these"
        yield Finding(Code.EVENT_TTL, path, text, remedy)


def _seconds(duration: str) -> float | None:
    found = re.fullmatch(r"(\d+)([smh])", duration)
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else None


def _issues(described: Described) -> list[str]:
    found = described.get("health", {}).get("issues", ())
    return [f"{each.get('code', '')}: {each.get('message', '')}" for each in found]


def cluster(account: Account) -> Iterator[Finding]:
    """Look at the state of the EKS cluster."""
    plan, found = account.plan, account.cluster
    if found is None:
        if "Cluster" not in plan.stacks:
            text = f"there is no EKS cluster {plan.eks_name} in {plan.region}"
            yield Finding(Code.BROUGHT_MISSING, ("existing_cluster",), text, "correct it")
        return
    path: Path = ("eks", plan.eks_name)
    if found["status"] != "ACTIVE":
        remedy = "wait until it is ACTIVE: what changes it is refused meanwhile"
        level = Level.WARNING if found["status"] == "UPDATING" else Level.ERROR
        yield in_aws(Code.CLUSTER_STATE, path, f"it is {found['status']}", remedy, level)
    for issue in _issues(found):
        yield in_aws(Code.CLUSTER_STATE, path, issue, "see to it, or open the EKS console")
    if found["version"] != plan.kubernetes_version:
        text = f"it runs {found['version']}, and the file says {plan.kubernetes_version}"
        yield in_aws(Code.CLUSTER_STATE, path, text, "correct the file, or " + _DEPLOY)


def addons(account: Account) -> Iterator[Finding]:
    """Compare add-ons with those of the plan."""
    if account.cluster is None or "Cluster" not in account.plan.stacks:
        return
    name, gone = account.plan.eks_name, "ResourceNotFoundException"
    describe = account.client("eks").describe_addon
    for addon in account.plan.addons:
        path: Path = ("eks", name, addon.name)
        answer = if_there(describe, gone, clusterName=name, addonName=addon.name)
        if answer is None:
            yield in_aws(Code.ADDON_STATE, path, "not installed", _DEPLOY)
            continue
        found = answer["addon"]
        if found["status"] not in {"ACTIVE", "UPDATING"}:
            text = "; ".join((f"it is {found['status']}", *_issues(found)))
            yield in_aws(Code.ADDON_STATE, path, text, "see to that, then " + _DEPLOY)
        if addon.version not in {None, found.get("addonVersion")}:
            text = f"it is {found['addonVersion']}, and this release has {addon.version}"
            yield in_aws(Code.ADDON_STATE, path, text, _DEPLOY, Level.WARNING)


def node_groups(account: Account) -> Iterator[Finding]:
    """Look at the pools' node groups."""
    plan = account.plan
    if account.cluster is None:
        return
    for name, found in account.node_groups.items():
        path: Path = ("eks", plan.eks_name, name)
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
            command = newest_release_command(plan.region, plan.kubernetes_version)
            remedy = f"set ami_release to what this prints, then meks deploy: {command}"
            yield in_aws(Code.NODE_GROUP_STATE, path, text, remedy)


def file_systems(account: Account) -> Iterator[Finding]:
    """Compare file systems with their plan."""
    outputs, storage = account.outputs.file_systems, account.plan.storage.file_systems
    for lustre, wanted in zip(outputs, storage, strict=True):
        path: Path = ("fsx", lustre.id)
        if lustre.preview:
            continue
        found = account.file_systems[lustre.id]
        if found is None:
            text = f"there is none in {account.plan.region}"
            remedy = "write the outputs anew: meks outputs; or correct storage.lustre.existing"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, remedy)
            continue
        if found["FileSystemType"] != "LUSTRE":
            text = f"it is an FSx file system of type {found['FileSystemType']}, and pods mount"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, f"{text} Lustre", "name one of Lustre")
            continue
        if found["Lifecycle"] not in _USABLE_FILE_SYSTEM:
            reason = found.get("FailureDetails", {}).get("Message", "")
            text = f"it is {found['Lifecycle']}" + (f": {reason}" if reason else "")
            remedy = "see to it in the FSx console; pods cannot rely on it"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, remedy)
        names = (found.get("DNSName"), found.get("LustreConfiguration", {}).get("MountName"))
        if names[1] and names != (lustre.dns_name, lustre.mount_name):
            text = f"it is {names[0]} with mount name {names[1]}"
            remedy = "write that: meks outputs, or storage.lustre.existing"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, remedy)
        if (size := found.get("StorageCapacity", 0)) < wanted.capacity_gib:
            text = f"it has {size} GiB, and the file says {wanted.capacity_gib}"
            yield in_aws(Code.FILE_SYSTEM_STATE, path, text, _DEPLOY, Level.WARNING)
        for number in found.get("SubnetIds", ()):
            zone = account.subnets.get(number, {}).get("AvailabilityZone", wanted.zone)
            if zone != wanted.zone:
                text = f"it is in {zone}, and nodes in {wanted.zone} pay for each byte between them"
                remedy = "use a pool in its zone, or a file system in the pool's"
                yield in_aws(Code.FILE_SYSTEM_STATE, path, text, remedy, Level.WARNING)


def built_images(account: Account) -> list[str]:
    """Return the images of the outputs that are known by their digest."""
    return [each.uri for each in account.outputs.images.values() if not each.preview]


def images(account: Account) -> Iterator[Finding]:
    """Look for the images that jobs would pull."""
    for uri in built_images(account):
        repository, _, digest = uri.partition("@")
        ours = f".dkr.ecr.{account.plan.region}." in uri
        if ours and not is_there(repository.partition(":")[0], digest, account.client("ecr")):
            remedy = "build it: meks build"
            yield in_aws(Code.IMAGE_MISSING, ("ecr",), f"there is no {uri}", remedy)
    for name, image in account.outputs.images.items():
        if image.preview and account.cluster is not None:
            text = f"the image {name} is known by no digest, so its jobs cannot be applied"
            yield in_aws(Code.IMAGE_MISSING, ("ecr",), text, "meks build", Level.WARNING)


def job_access(account: Account) -> Iterator[Finding]:
    """Name what job files say that the deployed role does not allow."""
    role, iam = account.outputs.job_role or "", account.client("iam")
    for uri in lacking(role, account.plan.data_access, iam):
        found = f"the role of the jobs was deployed before a job file named {uri}"
        yield in_aws(Code.JOB_ROLE, ("iam", "JobRole"), found, REMEDY)
