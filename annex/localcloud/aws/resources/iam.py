"""Roles, their policies, and instance profiles."""

import json
from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import Context, Handler, Setting
from megatron_eks.localcloud.aws.values import Object


class Role(Handler):
    """A role, with its inline policies and those that are attached to it."""

    kind = "AWS::IAM::Role"
    service = "iam"
    creates = ("CreateRole", "")
    identity = ("RoleName",)
    made_up = 64
    tagging = ("UntagRole", "TagRole")
    tagged = ("RoleName", "")
    describes = ("GetRole", "RoleName")
    answers: ClassVar = {"Arn": "Role.Arn"}
    owner = "RoleName"
    changes: ClassVar = {
        "AssumeRolePolicyDocument": Setting(
            "UpdateAssumeRolePolicy", form=lambda document: {"PolicyDocument": document}
        ),
        "Description": Setting("UpdateRoleDescription"),
        "PermissionsBoundary": Setting(
            "PutRolePermissionsBoundary", "DeleteRolePermissionsBoundary"
        ),
    }

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the role and what belongs to it; a policy of somebody else stands in the way."""
        iam = context.clients("iam")
        # Those that the role has: its creation may have stopped half way.
        for each in iam.list_role_policies(RoleName=physical_id)["PolicyNames"]:
            if each in [one["PolicyName"] for one in properties.get("Policies", [])]:
                iam.delete_role_policy(RoleName=physical_id, PolicyName=each)
        for each in iam.list_attached_role_policies(RoleName=physical_id)["AttachedPolicies"]:
            if each["PolicyArn"] in properties.get("ManagedPolicyArns", []):
                iam.detach_role_policy(RoleName=physical_id, PolicyArn=each["PolicyArn"])
        iam.delete_role(RoleName=physical_id)

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Give it its policies."""
        super().settle(context, physical_id, old, new)
        iam, name = context.clients("iam"), physical_id
        before, after = (
            {each["PolicyName"]: each["PolicyDocument"] for each in one.get("Policies", [])}
            for one in (old, new)
        )
        for each in before.keys() - after.keys():
            iam.delete_role_policy(RoleName=name, PolicyName=each)
        for each, document in after.items():
            if document != before.get(each):
                iam.put_role_policy(
                    RoleName=name, PolicyName=each, PolicyDocument=json.dumps(document)
                )
        attached, wanted = (set(one.get("ManagedPolicyArns", [])) for one in (old, new))
        for arn in sorted(attached - wanted):
            iam.detach_role_policy(RoleName=name, PolicyArn=arn)
        for arn in sorted(wanted - attached):
            iam.attach_role_policy(RoleName=name, PolicyArn=arn)


class Policy(Handler):
    """An inline policy of roles, as a resource of its own."""

    kind = "AWS::IAM::Policy"
    anew = True

    def create(self, context: Context, properties: Object) -> str:
        """Give the policy to its roles."""
        for role in properties.get("Roles", []):
            context.clients("iam").put_role_policy(
                RoleName=role,
                PolicyName=properties["PolicyName"],
                PolicyDocument=json.dumps(properties["PolicyDocument"]),
            )
        return context.new_name()

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Take the policy from its roles."""
        del physical_id
        for role in properties.get("Roles", []):
            context.clients("iam").delete_role_policy(
                RoleName=role, PolicyName=properties["PolicyName"]
            )


class InstanceProfile(Handler):
    """What gives an instance its role."""

    kind = "AWS::IAM::InstanceProfile"
    service = "iam"
    creates = ("CreateInstanceProfile", "")
    identity = ("InstanceProfileName",)
    made_up = 128

    def create(self, context: Context, properties: Object) -> str:
        """Make the profile, and put the role into it."""
        name = super().create(context, properties)
        for role in properties["Roles"]:
            context.clients("iam").add_role_to_instance_profile(
                InstanceProfileName=name, RoleName=role
            )
        return name

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the profile."""
        iam = context.clients("iam")
        for role in properties["Roles"]:
            iam.remove_role_from_instance_profile(InstanceProfileName=physical_id, RoleName=role)
        iam.delete_instance_profile(InstanceProfileName=physical_id)


HANDLERS: tuple[Handler, ...] = (Role(), Policy(), InstanceProfile())
