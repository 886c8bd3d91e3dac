"""Security groups and their rules."""

from typing import ClassVar

from megatron_eks.localcloud.aws.resources.ec2 import retag
from megatron_eks.localcloud.aws.resources.handler import Context, Handler
from megatron_eks.localcloud.aws.values import Object

# EC2 gives every new group this rule; CloudFormation takes it away if the template has its own.
_ALL_OUT = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}


def permission(rule: Object) -> Object:
    """Write a rule of a template as EC2's operations take it."""
    found: Object = {"IpProtocol": str(rule["IpProtocol"])}
    for name in ("FromPort", "ToPort"):
        if name in rule:
            found[name] = int(rule[name])
    described = {"Description": rule["Description"]} if "Description" in rule else {}
    peer = rule.get("SourceSecurityGroupId", rule.get("DestinationSecurityGroupId"))
    if peer:
        found["UserIdGroupPairs"] = [{"GroupId": peer, **described}]
    if "CidrIp" in rule:
        found["IpRanges"] = [{"CidrIp": rule["CidrIp"], **described}]
    return found


class SecurityGroup(Handler):
    """A group, with the rules that stand in it."""

    kind = "AWS::EC2::SecurityGroup"
    service = "ec2"
    creates = ("CreateSecurityGroup", "GroupId")
    identity = ("GroupName",)
    made_up = 255
    renamed: ClassVar = {"GroupDescription": "Description"}
    deletes = ("DeleteSecurityGroup", "GroupId")
    answers: ClassVar = {"GroupId": ""}

    def create(self, context: Context, properties: Object) -> str:
        """Make the group and its rules."""
        # moto does not look; a VPC that is not there is an error here.
        context.clients("ec2").describe_vpcs(VpcIds=[properties["VpcId"]])
        return super().create(context, properties)

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change tags and rules."""
        retag(context, physical_id, old, new)
        ec2 = context.clients("ec2")
        for name, direction, default in (
            ("SecurityGroupIngress", "ingress", []),
            ("SecurityGroupEgress", "egress", [_ALL_OUT]),
        ):
            before = [permission(each) for each in old.get(name, [])] or default
            after = [permission(each) for each in new.get(name, [])] or default
            # A rule that differs in its description alone is the same rule to EC2.
            gone, more = (
                [x for x in a if x not in b] for a, b in ((before, after), (after, before))
            )
            for verb, rules in (("revoke", gone), ("authorize", more)):
                for each in rules:
                    change = getattr(ec2, f"{verb}_security_group_{direction}")
                    change(GroupId=physical_id, IpPermissions=[each])


class Rule(Handler):
    """One rule, as a resource of its own."""

    def __init__(self, kind: str, direction: str) -> None:
        self.kind, self._direction = kind, direction

    def create(self, context: Context, properties: Object) -> str:
        """Add the rule to its group."""
        add = getattr(context.clients("ec2"), f"authorize_security_group_{self._direction}")
        answer = add(GroupId=properties["GroupId"], IpPermissions=[permission(properties)])
        return str(answer["SecurityGroupRules"][0]["SecurityGroupRuleId"])

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Take the rule from its group."""
        del physical_id
        remove = getattr(context.clients("ec2"), f"revoke_security_group_{self._direction}")
        remove(GroupId=properties["GroupId"], IpPermissions=[permission(properties)])


HANDLERS: tuple[Handler, ...] = (
    SecurityGroup(),
    Rule("AWS::EC2::SecurityGroupIngress", "ingress"),
    Rule("AWS::EC2::SecurityGroupEgress", "egress"),
)
