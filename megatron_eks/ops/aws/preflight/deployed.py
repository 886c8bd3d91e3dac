"""Reads what a deployment has made: cluster, add-ons, node groups, file systems, images."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime

from botocore.exceptions import ClientError

from megatron_eks.config.load import Json
from megatron_eks.ops.aws.node_groups import NodeGroup, NodeGroups
from megatron_eks.ops.aws.preflight.asking import Asking, missing
from megatron_eks.ops.aws.preflight.facts import Addon, EksCluster, FileSystem
from megatron_eks.ops.aws.preflight.network import groups
from megatron_eks.ops.aws.session import Aws

_GONE = "ResourceNotFoundException"


def cluster(aws: Aws, name: str) -> EksCluster | None:
    """Return an EKS cluster; None where there is none."""
    try:
        found = aws.client("eks").describe_cluster(name=name)["cluster"]
    except ClientError as error:
        if missing(error, _GONE):
            return None
        raise
    network = found.get("resourcesVpcConfig", {})
    return EksCluster(
        status=str(found.get("status", "")),
        version=str(found.get("version", "")),
        endpoint=str(found.get("endpoint", "")),
        certificate=str(found.get("certificateAuthority", {}).get("data", "")),
        vpc=str(network.get("vpcId", "")),
        subnets=tuple(network.get("subnetIds", ())),
        public=bool(network.get("endpointPublicAccess", True)),
        public_cidrs=tuple(network.get("publicAccessCidrs", ())),
        issues=_issues(found.get("health", {}).get("issues", ())),
    )


def support(ask: Asking, version: str) -> tuple[bool, date | None]:
    """Return whether EKS offers a Kubernetes version, and until when it supports it."""
    found = ask.client("eks").describe_cluster_versions(clusterVersions=[version])
    for each in found["clusterVersions"]:
        ends = each.get("endOfStandardSupportDate")
        return True, ends.date() if isinstance(ends, datetime) else None
    return False, None


def addon(ask: Asking, cluster_name: str, name: str) -> Addon | None:
    """Return an add-on; None where it is not installed."""
    try:
        found = ask.client("eks").describe_addon(clusterName=cluster_name, addonName=name)
    except ClientError as error:
        if missing(error, _GONE):
            return None
        raise
    each = found["addon"]
    return Addon(
        status=str(each.get("status", "")),
        version=str(each.get("addonVersion", "")),
        issues=_issues(each.get("health", {}).get("issues", ())),
    )


def node_group(ask: Asking, cluster_name: str, name: str) -> NodeGroup | None:
    """Return a node group; None where there is none."""
    clients = (ask.client(each) for each in ("eks", "ec2", "autoscaling"))
    return NodeGroups(cluster_name, *clients).find(name)


def file_system(ask: Asking, number: str) -> FileSystem | None:
    """Return a file system with its security groups; None where there is none."""
    try:
        answer = ask.client("fsx").describe_file_systems(FileSystemIds=[number])
    except ClientError as error:
        if missing(error, "FileSystemNotFound"):
            return None
        raise
    found = answer["FileSystems"][0]
    lustre = found.get("LustreConfiguration", {})
    interfaces = [str(each) for each in found.get("NetworkInterfaceIds", ())]
    own = ask(f"the security groups of {number}", lambda: _groups_of(ask, interfaces))
    return FileSystem(
        id=number,
        state=str(found.get("Lifecycle", "")),
        reason=str(found.get("FailureDetails", {}).get("Message", "")),
        kind=str(found.get("FileSystemType", "")),
        capacity_gib=int(found.get("StorageCapacity", 0)),
        deployment=str(lustre.get("DeploymentType", "")),
        dns_name=str(found.get("DNSName", "")),
        mount_name=str(lustre.get("MountName", "")),
        vpc=str(found.get("VpcId", "")),
        subnets=tuple(found.get("SubnetIds", ())),
        groups=tuple((groups(ask, own) if own else {}).values()),
    )


def has_image(ask: Asking, uri: str) -> bool:
    """Say whether a registry of ours holds an image, named by its digest."""
    repository, _, digest = uri.partition("/")[2].partition("@")
    try:
        ask.client("ecr").describe_images(
            repositoryName=repository.partition(":")[0], imageIds=[{"imageDigest": digest}]
        )
    except ClientError as error:
        if missing(error, "ImageNotFoundException", "RepositoryNotFoundException"):
            return False
        raise
    return True


def _groups_of(ask: Asking, interfaces: list[str]) -> list[str]:
    if not interfaces:
        return []
    filters = [{"Name": "network-interface-id", "Values": interfaces}]
    found = ask.client("ec2").describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
    return list(dict.fromkeys(one["GroupId"] for each in found for one in each["Groups"]))


def _issues(found: Iterable[Mapping[str, Json]]) -> tuple[str, ...]:
    return tuple(f"{each.get('code', '')}: {each.get('message', '')}" for each in found)
