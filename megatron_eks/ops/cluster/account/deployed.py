"""Reads what exists: a VPC and its groups, a key, and what a deployment has made."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Any

from botocore.client import BaseClient

from megatron_eks.config.load import Json
from megatron_eks.ops.aws.session import Aws, if_there
from megatron_eks.ops.cluster.account.facts import (
    Addon,
    Asking,
    EksCluster,
    FileSystem,
    Group,
    Rule,
    Subnet,
)
from megatron_eks.ops.cluster.build_records import is_there

_GONE = "ResourceNotFoundException"


def cluster(aws: Aws, name: str) -> EksCluster | None:
    """Return an EKS cluster; None where there is none."""
    answer = if_there(aws.client("eks").describe_cluster, _GONE, name=name)
    if answer is None:
        return None
    found = answer["cluster"]
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


def support(ask: Asking, version: str) -> tuple[bool, date | None, tuple[str, str]]:
    """Return whether EKS offers a Kubernetes version, until when, and its bounds of events' time.

    Bounds that it does not tell are empty.
    """
    found = ask.client("eks").describe_cluster_versions(clusterVersions=[version])
    for each in found["clusterVersions"]:
        ends = each.get("endOfStandardSupportDate")
        server = each.get("controlPlaneComponentConfig", {}).get("kubeApiServerConfig", {})
        bounds = server.get("eventTtl", {}).get("constraints", {})
        least, most = (str(bounds.get(name, "")) for name in ("min", "max"))
        return True, ends.date() if isinstance(ends, datetime) else None, (least, most)
    return False, None, ("", "")


def addon(eks: BaseClient, cluster_name: str, name: str) -> Addon | None:
    """Return an add-on; None where it is not installed."""
    found = if_there(eks.describe_addon, _GONE, clusterName=cluster_name, addonName=name)
    if found is None:
        return None
    each = found["addon"]
    return Addon(
        status=str(each.get("status", "")),
        version=str(each.get("addonVersion", "")),
        issues=_issues(each.get("health", {}).get("issues", ())),
    )


def file_system(ask: Asking, number: str) -> FileSystem | None:
    """Return a file system with its security groups; None where there is none."""
    fsx = ask.client("fsx")
    answer = if_there(fsx.describe_file_systems, "FileSystemNotFound", FileSystemIds=[number])
    if answer is None:
        return None
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
        dns_name=str(found.get("DNSName", "")),
        mount_name=str(lustre.get("MountName", "")),
        subnets=tuple(found.get("SubnetIds", ())),
        groups=tuple((groups(ask, group_id=own) if own else {}).values()),
    )


def has_image(ecr: BaseClient, uri: str) -> bool:
    """Say whether a registry of ours holds an image, named by its digest."""
    repository, _, digest = uri.partition("@")
    return is_there(repository.partition(":")[0], digest, ecr)


def _groups_of(ask: Asking, interfaces: list[str]) -> list[str]:
    if not interfaces:
        return []
    filters = [{"Name": "network-interface-id", "Values": interfaces}]
    found = ask.client("ec2").describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
    return list(dict.fromkeys(one["GroupId"] for each in found for one in each["Groups"]))


def _issues(found: Iterable[Mapping[str, Json]]) -> tuple[str, ...]:
    return tuple(f"{each.get('code', '')}: {each.get('message', '')}" for each in found)


_ALL_PORTS = (0, 65535)


def subnets(ask: Asking, wanted: Iterable[str]) -> dict[str, Subnet]:
    """Return those of some subnets that exist."""
    filters = [{"Name": "subnet-id", "Values": list(wanted)}]
    return {
        each["SubnetId"]: Subnet(
            id=each["SubnetId"],
            vpc=each["VpcId"],
            zone=each["AvailabilityZone"],
            free=int(each["AvailableIpAddressCount"]),
        )
        for each in ask.client("ec2").describe_subnets(Filters=filters)["Subnets"]
    }


def vpc_exists(ask: Asking, vpc: str) -> bool:
    """Say whether there is such a VPC."""
    filters = [{"Name": "vpc-id", "Values": [vpc]}]
    return bool(ask.client("ec2").describe_vpcs(Filters=filters)["Vpcs"])


def groups(ask: Asking, **wanted: Iterable[str]) -> dict[str, Group]:
    """Return the security groups that exist, by filters of EC2 such as `group_id`."""
    filters = [
        {"Name": name.replace("_", "-"), "Values": list(values)} for name, values in wanted.items()
    ]
    found = ask.client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]
    return {
        each["GroupId"]: Group(
            id=str(each["GroupId"]),
            vpc=str(each.get("VpcId", "")),
            ingress=tuple(_rules(each.get("IpPermissions", ()))),
            egress=tuple(_rules(each.get("IpPermissionsEgress", ()))),
        )
        for each in found
    }


def key_state(ask: Asking, arn: str) -> str:
    """Return the state of a key; empty where there is none."""
    found = if_there(ask.client("kms").describe_key, "NotFoundException", KeyId=arn)
    return str(found["KeyMetadata"]["KeyState"]) if found else ""


def _rules(permissions: Iterable[Mapping[str, Any]]) -> Iterator[Rule]:
    for each in permissions:
        # -1 is every port, too.
        first, last = (
            default if each.get(name, -1) < 0 else each[name]
            for name, default in zip(("FromPort", "ToPort"), _ALL_PORTS, strict=True)
        )
        for kind, name in (
            ("UserIdGroupPairs", "GroupId"),
            ("IpRanges", "CidrIp"),
            ("Ipv6Ranges", "CidrIpv6"),
            ("PrefixListIds", "PrefixListId"),
        ):
            for peer in each.get(kind, ()):
                yield Rule(each["IpProtocol"], first, last, peer.get(name, ""))
