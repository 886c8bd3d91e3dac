"""KMS keys, log groups and parameters."""

import json
from collections.abc import Mapping
from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import Context, Handler, call, untagged
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value

_WAIT_DAYS = 30


class Key(Handler):
    """A key; deleting it waits, as KMS does."""

    kind = "AWS::KMS::Key"
    service = "kms"
    creates = ("CreateKey", "KeyMetadata.KeyId")
    renamed: ClassVar = {"KeyPolicy": "Policy"}
    tagged = ("KeyId", "")
    describes = ("DescribeKey", "KeyId")
    answers: ClassVar = {"Arn": "KeyMetadata.Arn", "KeyId": "KeyMetadata.KeyId"}

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Switch rotation on or off."""
        rotates = new.get("EnableKeyRotation", False)
        if rotates != old.get("EnableKeyRotation", False):
            kms = context.clients("kms")
            (kms.enable_key_rotation if rotates else kms.disable_key_rotation)(KeyId=physical_id)

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change policy, description, rotation and tags."""
        kms = context.clients("kms")
        if new.get("KeyPolicy") != old.get("KeyPolicy") and "KeyPolicy" in new:
            kms.put_key_policy(
                KeyId=physical_id, PolicyName="default", Policy=json.dumps(new["KeyPolicy"])
            )
        if new.get("Description") != old.get("Description"):
            kms.update_key_description(KeyId=physical_id, Description=new.get("Description", ""))
        super().update(context, physical_id, old, new)

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
    creates = ("CreateAlias", "")
    identity = ("AliasName",)
    updates = ("UpdateAlias",)
    deletes = ("DeleteAlias", "AliasName")


class LogGroup(Handler):
    """A log group."""

    kind = "AWS::Logs::LogGroup"
    service = "logs"
    creates = ("CreateLogGroup", "")
    identity = ("LogGroupName",)
    made_up = 512
    tagging = ("UntagLogGroup", "TagLogGroup")
    tagged = ("logGroupName", "")
    deletes = ("DeleteLogGroup", "logGroupName")

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Set for how long lines are kept."""
        days, logs = new.get("RetentionInDays"), context.clients("logs")
        if days is None and "RetentionInDays" in old:
            logs.delete_retention_policy(logGroupName=physical_id)
        elif days != old.get("RetentionInDays"):
            logs.put_retention_policy(logGroupName=physical_id, retentionInDays=days)

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change retention, key and tags."""
        logs = context.clients("logs")
        if new.get("KmsKeyId") != old.get("KmsKeyId"):
            if "KmsKeyId" in new:
                logs.associate_kms_key(logGroupName=physical_id, kmsKeyId=new["KmsKeyId"])
            else:
                logs.disassociate_kms_key(logGroupName=physical_id)
        super().update(context, physical_id, old, new)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return the ARN."""
        del properties
        return {"Arn": f"arn:aws:logs:{context.region}:{ACCOUNT}:log-group:{physical_id}:*"}


class Parameter(Handler):
    """A parameter of the parameter store."""

    kind = "AWS::SSM::Parameter"
    service = "ssm"
    creates = ("PutParameter", "")
    identity = ("Name",)
    made_up = 128
    deletes = ("DeleteParameter", "Name")

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Store another value."""
        del old
        given = {**untagged(new), "Name": physical_id}
        call(context, "ssm", "PutParameter", given, Overwrite=True)


HANDLERS: tuple[Handler, ...] = (Key(), Alias(), LogGroup(), Parameter())
