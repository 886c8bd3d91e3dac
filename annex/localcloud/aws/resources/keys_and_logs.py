"""KMS keys, log groups and parameters."""

import json
from collections.abc import Mapping
from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import (
    RESOURCE,
    Context,
    Handler,
    change_tags,
    tags_of,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value

_WAIT_DAYS = 30


class Key(Handler):
    """A key; deleting it waits, as KMS does."""

    kind = "AWS::KMS::Key"
    service = "kms"
    describes = ("DescribeKey", "KeyId")
    answers: ClassVar = {"Arn": "KeyMetadata.Arn", "KeyId": "KeyMetadata.KeyId"}

    def create(self, context: Context, properties: Object) -> str:
        """Make the key."""
        kms = context.clients("kms")
        tags = [{"TagKey": key, "TagValue": each} for key, each in tags_of(properties).items()]
        answer = kms.create_key(
            Description=properties.get("Description", ""),
            **(
                {"Policy": json.dumps(properties["KeyPolicy"])} if "KeyPolicy" in properties else {}
            ),
            **({"Tags": tags} if tags else {}),
        )
        key = str(answer["KeyMetadata"]["KeyId"])
        context.note(key)
        if properties.get("EnableKeyRotation"):
            kms.enable_key_rotation(KeyId=key)
        return key

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change policy, description, rotation and tags."""
        kms = context.clients("kms")
        if new.get("KeyPolicy") != old.get("KeyPolicy") and "KeyPolicy" in new:
            kms.put_key_policy(
                KeyId=physical_id, PolicyName="default", Policy=json.dumps(new["KeyPolicy"])
            )
        if new.get("Description") != old.get("Description"):
            kms.update_key_description(KeyId=physical_id, Description=new.get("Description", ""))
        if new.get("EnableKeyRotation") != old.get("EnableKeyRotation"):
            rotate = new.get("EnableKeyRotation")
            (kms.enable_key_rotation if rotate else kms.disable_key_rotation)(KeyId=physical_id)
        change_tags(kms, RESOURCE, {"KeyId": physical_id}, old, new)

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Let the key be deleted when its waiting time is over."""
        del properties
        context.clients("kms").schedule_key_deletion(
            KeyId=physical_id, PendingWindowInDays=_WAIT_DAYS
        )


class Alias(Handler):
    """Another name of a key."""

    kind = "AWS::KMS::Alias"
    service = "kms"
    deletes = ("DeleteAlias", "AliasName")

    def create(self, context: Context, properties: Object) -> str:
        """Make the alias."""
        context.clients("kms").create_alias(**properties)
        return str(properties["AliasName"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Let the alias stand for another key."""
        del old
        context.clients("kms").update_alias(AliasName=physical_id, TargetKeyId=new["TargetKeyId"])


class LogGroup(Handler):
    """A log group."""

    kind = "AWS::Logs::LogGroup"
    service = "logs"
    deletes = ("DeleteLogGroup", "logGroupName")

    def create(self, context: Context, properties: Object) -> str:
        """Make the group."""
        name = str(properties.get("LogGroupName") or context.new_name(512))
        tags = tags_of(properties)
        context.clients("logs").create_log_group(
            logGroupName=name,
            **({"kmsKeyId": properties["KmsKeyId"]} if "KmsKeyId" in properties else {}),
            **({"tags": tags} if tags else {}),
        )
        context.note(name)
        self._retention(context, name, {}, properties)
        return name

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change retention, key and tags."""
        logs = context.clients("logs")
        self._retention(context, physical_id, old, new)
        if new.get("KmsKeyId") != old.get("KmsKeyId"):
            if "KmsKeyId" in new:
                logs.associate_kms_key(logGroupName=physical_id, kmsKeyId=new["KmsKeyId"])
            else:
                logs.disassociate_kms_key(logGroupName=physical_id)
        owner = {"logGroupName": physical_id}
        change_tags(logs, ("UntagLogGroup", "TagLogGroup"), owner, old, new)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return the ARN."""
        del properties
        return {"Arn": f"arn:aws:logs:{context.region}:{ACCOUNT}:log-group:{physical_id}:*"}

    @staticmethod
    def _retention(context: Context, name: str, old: Object, new: Object) -> None:
        days = new.get("RetentionInDays")
        if days == old.get("RetentionInDays"):
            return
        logs = context.clients("logs")
        if days is None:
            logs.delete_retention_policy(logGroupName=name)
        else:
            logs.put_retention_policy(logGroupName=name, retentionInDays=days)


class Parameter(Handler):
    """A parameter of the parameter store."""

    kind = "AWS::SSM::Parameter"
    service = "ssm"
    deletes = ("DeleteParameter", "Name")

    def create(self, context: Context, properties: Object) -> str:
        """Store the value."""
        name = str(properties.get("Name") or f"CFN-{context.new_name()}")
        context.clients("ssm").put_parameter(
            Name=name,
            Type=properties["Type"],
            Value=properties["Value"],
        )
        return name

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Store another value."""
        del old
        context.clients("ssm").put_parameter(
            Name=physical_id,
            Type=new["Type"],
            Value=new["Value"],
            Overwrite=True,
        )


HANDLERS: tuple[Handler, ...] = (Key(), Alias(), LogGroup(), Parameter())
