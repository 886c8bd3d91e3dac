"""Checks of a VPC that exists: subnets, their addresses, and security groups."""

from collections.abc import Iterable, Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.ops.checks import in_aws
from megatron_eks.ops.cluster.account.account import Account, Described
from megatron_eks.ops.output import count
from megatron_eks.plan.cluster.network import node_addresses

# FSx for Lustre User Guide, "File system access control with Amazon VPC".
_LUSTRE_PORT = 988
_LUSTRE = "TCP 988 and 1018-1023"
_PEERS = (
    ("UserIdGroupPairs", "GroupId"),
    ("IpRanges", "CidrIp"),
    ("Ipv6Ranges", "CidrIpv6"),
    ("PrefixListIds", "PrefixListId"),
)


def _peers(rules: Iterable[Described]) -> list[str]:
    """Return whom rules of a security group name: groups, ranges of addresses, prefix lists."""
    return [
        str(peer.get(name, ""))
        for rule in rules
        for kind, name in _PEERS
        for peer in rule.get(kind, ())
    ]


def brought(account: Account) -> Iterator[Finding]:
    """Compare the subnets that the file names with its zones: nodes would start in others."""
    existing = account.plan.network.existing
    # Where none of them exists, CloudFormation names the VPC.
    if existing is not None and account.subnets:
        for zone, number in existing.private_subnets.items():
            yield from _subnet(account, zone, number, existing.vpc_id)


def _subnet(account: Account, zone: str, number: str, vpc: str) -> Iterator[Finding]:
    path: Path = ("network", "private_subnets", zone)
    found = account.subnets.get(number)
    if found is None:
        text = f"there is no subnet {number} in {account.plan.region}"
        yield Finding(Code.BROUGHT_MISSING, path, text, "correct it")
    elif found["VpcId"] != vpc:
        text = f"{number} is in {found['VpcId']}, and not in {vpc}"
        yield Finding(Code.BROUGHT_MISSING, path, text, "name a subnet of that VPC")
    elif found["AvailabilityZone"] != zone:
        there = found["AvailabilityZone"]
        remedy = f"write it under {there}"
        yield Finding(Code.BROUGHT_MISSING, path, f"{number} is in {there}", remedy)


def addresses(account: Account) -> Iterator[Finding]:
    """Compare free addresses in each zone with what its pools may still take."""
    existing, pools = account.plan.network.existing, account.plan.pools
    named = set(existing.private_subnets.values()) if existing else set()
    for zone in dict.fromkeys(pool.zone for pool in pools):
        free = {
            int(each["AvailableIpAddressCount"]): number
            for number, each in account.subnets.items()
            if each["AvailabilityZone"] == zone and (not named or number in named)
        }
        if not free:
            continue
        nodes = sum(
            pool.max_nodes - (group.wanted if (group := account.node_groups.get(pool.name)) else 0)
            for pool in pools
            if pool.zone == zone
        )
        most, needed = max(free), node_addresses(max(0, nodes))
        if most < needed:
            text = f"{most} addresses are free, and {nodes} more nodes take {needed}"
            remedy = "use fewer nodes, or a larger subnet; unused interfaces hold addresses too"
            yield in_aws(Code.SUBNET_ADDRESSES, (free[most],), text, remedy)


def default_group(account: Account) -> Iterator[Finding]:
    """Ask for the default group to be closed, as CloudFormation alone cannot."""
    cluster, existing = account.cluster, account.plan.network.existing
    vpc = existing.vpc_id if existing else ""
    if cluster:
        vpc = str(cluster.get("resourcesVpcConfig", {}).get("vpcId", ""))
    # AWS puts one into every VPC.
    for group in account.groups("vpc-id", vpc) if vpc else ():
        inward = len(_peers(group["IpPermissions"]))
        outward = len(_peers(group["IpPermissionsEgress"]))
        if group["GroupName"] == "default" and (inward or outward):
            text = f"it lets {count(inward, 'rule')} in and {outward} out"
            remedy = (
                "aws ec2 describe-security-group-rules --filters Name=group-id,Values="
                f"{group['GroupId']}, then revoke each: nothing of this project uses the group"
            )
            path: Path = (vpc, group["GroupId"])
            yield in_aws(Code.DEFAULT_GROUP, path, text, remedy, Level.WARNING)


def rules(account: Account) -> Iterator[Finding]:
    """Look for the rules that EFA and Lustre need, in groups that this project did not make."""
    existing = account.plan.network.existing
    nodes = existing.node_security_group_id if existing else None
    if nodes and any(pool.instance.efa_interfaces for pool in account.plan.pools):
        for group in account.groups("group-id", nodes):
            yield from _efa(group)
    if account.plan.storage.existing:
        for system in account.file_systems.values():
            if system and (groups := _groups_of(account, system)):
                yield from _lustre(groups, nodes)


def _groups_of(account: Account, system: Described) -> list[Described]:
    filters = [{"Name": "network-interface-id", "Values": system.get("NetworkInterfaceIds", [])}]
    found = account.client("ec2").describe_network_interfaces(Filters=filters)
    own = {str(x["GroupId"]) for each in found["NetworkInterfaces"] for x in each["Groups"]}
    return account.groups("group-id", *own) if own else []


def _efa(group: Described) -> Iterator[Finding]:
    """Require all traffic to itself, both ways; egress to every address is not enough for EFA."""
    number = group["GroupId"]
    for word, permissions, option in (
        ("from", group["IpPermissions"], "ingress"),
        ("to", group["IpPermissionsEgress"], "egress"),
    ):
        if number in _peers(each for each in permissions if each["IpProtocol"] == "-1"):
            continue
        text = f"{number} has no rule for all traffic {word} itself, so EFA does not work"
        remedy = (
            f"aws ec2 authorize-security-group-{option} --group-id {number} --ip-permissions "
            f"'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={number}}}]'"
        )
        path: Path = ("network", "node_security_group_id")
        yield Finding(Code.BROUGHT_RULES, path, text, remedy)


def _lustre(groups: Iterable[Described], nodes: str | None) -> Iterator[Finding]:
    """Require Lustre's ports to be open for the nodes: their group, or somebody besides itself."""
    own = {str(group["GroupId"]) for group in groups}
    wanted = {nodes} if nodes else set()

    def admits(peer: str) -> bool:
        return peer in wanted or not peer.startswith("sg-") or (not wanted and peer not in own)

    covering = (
        rule
        for group in groups
        for rule in group["IpPermissions"]
        if rule["IpProtocol"] == "-1"
        or (rule["IpProtocol"] == "tcp" and rule["FromPort"] <= _LUSTRE_PORT <= rule["ToPort"])
    )
    if any(admits(peer) or (wanted & own and peer in own) for peer in _peers(covering)):
        return
    whom = f"the nodes ({nodes})" if nodes else "any group but its own"
    text = f"{', '.join(sorted(own))} opens {_LUSTRE} for nobody of {whom}"
    remedy = f"open {_LUSTRE} to the nodes' security group, both ways"
    yield Finding(Code.BROUGHT_RULES, ("storage", "lustre", "existing"), text, remedy)
