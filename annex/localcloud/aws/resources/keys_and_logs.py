"""KMS keys, log groups and parameters."""

from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import Context, Handler, Setting, call, untagged
from megatron_eks.localcloud.aws.values import Object

_WAIT_DAYS = 30


class Key(Handler):
    """A key; deleting it waits, as KMS does."""

    kind = "AWS::KMS::Key"
    service = "kms"
    creates = ("CreateKey", "KeyMetadata.KeyId")
    renamed: ClassVar = {"KeyPolicy": "Policy"}
    tagged = ("KeyId", "")
    describes = ("DescribeKey", "KeyId")
    answers: ClassVar = {"Arn": "KeyMetadata.Arn"}
    owner = "KeyId"
    changes: ClassVar = {
        "KeyPolicy": Setting(
            "PutKeyPolicy", form=lambda policy: {"PolicyName": "default", "Policy": policy}
        ),
        "Description": Setting("UpdateKeyDescription"),
    }

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Switch rotation on or off."""
        super().settle(context, physical_id, old, new)
        rotates = new.get("EnableKeyRotation", False)
        if rotates != old.get("EnableKeyRotation", False):
            kms = context.clients("kms")
            (kms.enable_key_rotation if rotates else kms.disable_key_rotation)(KeyId=physical_id)

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Let the key be deleted when its waiting time is over."""
        del properties
        context.clients("kms").schedule_key_deletion(
            KeyId=physical_id, PendingWindowInDays=_WAIT_DAYS
        )


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
    answers: ClassVar = {"Arn": "arn:aws:logs:{region}:{account}:log-group:{id}:*"}
    owner = "logGroupName"
    settings: ClassVar = {"RetentionInDays": Setting("PutRetentionPolicy", "DeleteRetentionPolicy")}
    changes: ClassVar = {"KmsKeyId": Setting("AssociateKmsKey", "DisassociateKmsKey")}


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


HANDLERS: tuple[Handler, ...] = (Key(), LogGroup(), Parameter())
