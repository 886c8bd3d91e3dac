"""Rules over the groups of a resource: in which VPC they are, and what admits EFA."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.cloudformation.security_groups import GROUP, rules_of
from megatron_eks.rules.launch_templates import launch_templates
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items

_SUBNETS = ("SubnetIds", "Subnets", "SubnetId")
_CARRIERS = (
    ("AWS::FSx::FileSystem", "SecurityGroupIds"),
    ("AWS::EFS::MountTarget", "SecurityGroups"),
    ("AWS::EC2::VPCEndpoint", "SecurityGroupIds"),
    ("AWS::EC2::Instance", "SecurityGroupIds"),
)


def without_network(templates: TemplateSet) -> Iterator[Finding]:
    """Require a VPC of a group that something in a VPC at hand carries.

    EC2 API, CreateSecurityGroup.VpcId: without it the group is in the account's default VPC, and
    FSx, EFS and EC2 refuse groups and subnets of two VPCs (InvalidGroup.NotFound).
    """
    told: set[Resource] = set()
    for kind, key in _CARRIERS:
        for user in templates.resources(kind):
            vpc = _vpc(user, templates)
            groups = templates.targets(items(user.properties.get(key)) or [], user.file)
            for group in groups if vpc is not None else ():
                if group is None or group.type != GROUP or group in told or vpc is None:
                    continue
                names = templates.names(group.file)
                # The template of the VPC itself is judged by what is in it.
                elsewhere = vpc.file != group.file and names is not None and names.whole
                if elsewhere and is_absent(group.properties.get("VpcId")):
                    told.add(group)
                    found = "no VPC, so the group goes into the account's default one, and "
                    found += f"{user.id}, which carries it, is in {vpc.id}"
                    remedy = f"name the VPC: the export of {vpc.id}"
                    yield group.find(Code.NETWORK_PART, ("VpcId",), found, remedy)


def _vpc(user: Resource, templates: TemplateSet) -> Resource | None:
    for key in _SUBNETS:
        value = user.properties.get(key)
        listed = value if isinstance(value, list) else [value]
        for subnet in templates.targets(listed, user.file):
            if subnet is not None and subnet.type == "AWS::EC2::Subnet":
                vpc = templates.target(subnet.properties.get("VpcId"), subnet.file)
                if vpc is not None and vpc.type == "AWS::EC2::VPC":
                    return vpc
    return None


def left_out(templates: TemplateSet) -> Iterator[Finding]:
    """Warn of an EFA interface without the group that admits EFA on the others.

    EC2 User Guide, "Get started with EFA", step 1: the rules of a group hold for the interfaces
    that carry it, and each of them talks to those of the other nodes.
    """
    for template in launch_templates(templates):
        carried: dict[int, list[Resource | None]] = {}
        for interface in template.interfaces or []:
            groups = items(interface.body.get("Groups"))
            if interface.is_efa and groups:
                carried[interface.index] = templates.targets(groups, template.resource.file)
        wide = {
            group: index
            for index, groups in carried.items()
            for group in groups
            if group is not None and group.type == GROUP and _admits_itself(group, templates)
        }
        for interface in template.interfaces or []:
            own = carried.get(interface.index)
            unknown = own is None or any(
                templates.may_be_any(each, template.resource.file)
                for each in items(interface.body.get("Groups")) or []
            )
            if own is None or unknown or not wide or not wide.keys().isdisjoint(own):
                continue
            group, index = next(iter(wide.items()))
            if set(carried[index]).isdisjoint(own):
                # That it has none in common with the others is said of it already.
                continue
            found = f"without {group.id}, which admits EFA from and to itself and which interface "
            found += f"{index} has: NCCL hangs on this card"
            path = (*interface.path, "Groups")
            remedy = f"add {group.id}, as on interface {index}"
            yield template.resource.find(Code.EFA_SELF_RULES, path, found, remedy, Level.WARNING)


def _admits_itself(group: Resource, templates: TemplateSet) -> bool:
    every = [rules_of(group, "Ingress", templates), rules_of(group, "Egress", templates)]
    return all(any(rule.may_admit_all(group) for rule in rules or []) for rules in every)
