"""Checks of a VPC that exists: subnets, their addresses, and security groups."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.ops.checks import in_aws
from megatron_eks.ops.cluster.account.facts import Group, Subject
from megatron_eks.ops.output import count
from megatron_eks.plan.cluster.network import node_addresses

# FSx for Lustre User Guide, "File system access control with Amazon VPC".
_LUSTRE_PORT = 988
_LUSTRE = "TCP 988 and 1018-1023"


def brought(subject: Subject) -> Iterator[Finding]:
    """Look for the VPC, subnets, group and key that the file names."""
    facts, existing = subject.facts, subject.plan.network.existing
    if existing is not None:
        if facts.vpcs.get(existing.vpc_id) is False:
            found = f"there is no VPC {existing.vpc_id} in {subject.plan.region}"
            yield Finding(Code.BROUGHT_MISSING, ("network", "vpc_id"), found, "correct it")
        for zone, number in existing.private_subnets.items():
            yield from _subnet(subject, zone, number, existing.vpc_id)
        group = existing.node_security_group_id
        if group is not None and facts.vpcs.get(existing.vpc_id) and group not in facts.groups:
            found = f"there is no security group {group} in {subject.plan.region}"
            path: Path = ("network", "node_security_group_id")
            yield Finding(Code.BROUGHT_MISSING, path, found, "correct it")
    if subject.plan.storage.existing and facts.cluster is None:
        # Once there is a cluster, what is in it says whether this has happened.
        directories = subject.plan.platform.shared_directories
        found = f"it exists, and the set-up Job of `meks apply` {directories}"
        remedy = "see that nothing of others has these names; or set path, a folder of yours"
        path = ("storage", "lustre", "existing")
        yield Finding(Code.SHARED_DIRECTORIES, path, found, remedy, Level.WARNING)
    for arn, state in facts.keys.items():
        if state != "Enabled":
            found = f"{arn} is {state}" if state else f"there is no key {arn}"
            path = ("storage", "kms_key_arn")
            yield Finding(Code.BROUGHT_MISSING, path, found, "name a key that is enabled")


def _subnet(subject: Subject, zone: str, number: str, vpc: str) -> Iterator[Finding]:
    path: Path = ("network", "private_subnets", zone)
    if not subject.facts.subnets:
        return  # Nobody may look, or none of them exists: then the VPC does not either.
    found = subject.facts.subnets.get(number)
    if found is None:
        text = f"there is no subnet {number} in {subject.plan.region}"
        yield Finding(Code.BROUGHT_MISSING, path, text, "correct it")
    elif found.vpc != vpc:
        text = f"{number} is in {found.vpc}, and not in {vpc}"
        yield Finding(Code.BROUGHT_MISSING, path, text, "name a subnet of that VPC")
    elif found.zone != zone:
        text = f"{number} is in {found.zone}"
        yield Finding(Code.BROUGHT_MISSING, path, text, f"write it under {found.zone}")


def addresses(subject: Subject) -> Iterator[Finding]:
    """Compare free addresses in each zone with what its pools may still take."""
    existing = subject.plan.network.existing
    named = set(existing.private_subnets.values()) if existing else set()
    for zone in dict.fromkeys(pool.zone for pool in subject.plan.pools):
        found = [
            each
            for each in subject.facts.subnets.values()
            if each.zone == zone and (not named or each.id in named)
        ]
        if not found:
            continue
        largest = max(found, key=lambda each: each.free)
        groups = subject.facts.node_groups
        nodes = sum(
            pool.max_nodes - (group.wanted if (group := groups.get(pool.name)) else 0)
            for pool in subject.plan.pools
            if pool.zone == zone
        )
        needed = node_addresses(max(0, nodes))
        if largest.free < needed:
            text = f"{largest.free} addresses are free, and {nodes} more nodes take {needed}"
            remedy = "use fewer nodes, or a larger subnet; unused interfaces hold addresses too"
            yield in_aws(Code.SUBNET_ADDRESSES, (largest.id,), text, remedy)


def default_group(subject: Subject) -> Iterator[Finding]:
    """Ask for the default group to be closed, as CloudFormation alone cannot."""
    group = subject.facts.default_group
    if group is None or not (group.ingress or group.egress):
        return
    text = f"it lets {count(len(group.ingress), 'rule')} in and {len(group.egress)} out"
    remedy = (
        f"aws ec2 describe-security-group-rules --filters Name=group-id,Values={group.id}, then "
        "revoke each: nothing of this project uses the group"
    )
    path: Path = (group.vpc, group.id)
    yield in_aws(Code.DEFAULT_GROUP, path, text, remedy, Level.WARNING)


def rules(subject: Subject) -> Iterator[Finding]:
    """Look for the rules that EFA and Lustre need, in groups that this project did not make."""
    existing = subject.plan.network.existing
    nodes = existing.node_security_group_id if existing else None
    group = subject.facts.groups.get(nodes or "")
    if group is not None and any(pool.instance.efa_interfaces for pool in subject.plan.pools):
        yield from _efa(group)
    if subject.plan.storage.existing:
        for system in subject.facts.file_systems.values():
            if system is not None and system.groups:
                yield from _lustre(system.groups, nodes)


def _efa(group: Group) -> Iterator[Finding]:
    """Require all traffic to itself, both ways; egress to every address is not enough for EFA."""
    for word, rules_of, option in (
        ("from", group.ingress, "ingress"),
        ("to", group.egress, "egress"),
    ):
        if any(rule.protocol == "-1" and rule.peer == group.id for rule in rules_of):
            continue
        text = f"{group.id} has no rule for all traffic {word} itself, so EFA does not work"
        remedy = (
            f"aws ec2 authorize-security-group-{option} --group-id {group.id} --ip-permissions "
            f"'IpProtocol=-1,UserIdGroupPairs=[{{GroupId={group.id}}}]'"
        )
        path: Path = ("network", "node_security_group_id")
        yield Finding(Code.BROUGHT_RULES, path, text, remedy)


def _lustre(groups: tuple[Group, ...], nodes: str | None) -> Iterator[Finding]:
    """Require Lustre's ports to be open for the nodes: their group, or somebody besides itself."""
    own = {group.id for group in groups}
    wanted = {nodes} if nodes else set()

    def admits(peer: str) -> bool:
        return peer in wanted or not peer.startswith("sg-") or (not wanted and peer not in own)

    rules = [rule for group in groups for rule in group.ingress if rule.covers(_LUSTRE_PORT)]
    if any(admits(rule.peer) or (wanted & own and rule.peer in own) for rule in rules):
        return
    whom = f"the nodes ({nodes})" if nodes else "any group but its own"
    text = f"{', '.join(sorted(own))} opens {_LUSTRE} for nobody of {whom}"
    remedy = f"open {_LUSTRE} to the nodes' security group, both ways"
    yield Finding(Code.BROUGHT_RULES, ("storage", "lustre", "existing"), text, remedy)
