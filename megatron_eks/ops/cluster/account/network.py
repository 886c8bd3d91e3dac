"""Reads a VPC that exists: subnets, security groups, and the key that a file names."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from megatron_eks.ops.aws.session import if_there
from megatron_eks.ops.cluster.account.asking import Asking
from megatron_eks.ops.cluster.account.facts import Group, Rule, Subnet

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


def groups(ask: Asking, wanted: Iterable[str]) -> dict[str, Group]:
    """Return those of some security groups that exist."""
    filters = [{"Name": "group-id", "Values": list(wanted)}]
    found = ask.client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]
    return {each["GroupId"]: _group(each) for each in found}


def default_group(ask: Asking, vpc: str) -> Group | None:
    """Return the group that AWS puts into every VPC."""
    filters = [
        {"Name": "vpc-id", "Values": [vpc]},
        {"Name": "group-name", "Values": ["default"]},
    ]
    found = ask.client("ec2").describe_security_groups(Filters=filters)["SecurityGroups"]
    return _group(found[0]) if found else None


def key_state(ask: Asking, arn: str) -> str:
    """Return the state of a key; empty where there is none."""
    found = if_there(ask.client("kms").describe_key, "NotFoundException", KeyId=arn)
    return str(found["KeyMetadata"]["KeyState"]) if found else ""


def _group(found: Mapping[str, Any]) -> Group:
    return Group(
        id=str(found["GroupId"]),
        vpc=str(found.get("VpcId", "")),
        ingress=tuple(_rules(found.get("IpPermissions", ()))),
        egress=tuple(_rules(found.get("IpPermissionsEgress", ()))),
    )


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
