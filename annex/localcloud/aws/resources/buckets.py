"""S3 buckets and their policies."""

from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import Context, Handler, Setting
from megatron_eks.localcloud.aws.values import Object


def _encryption(value: Object) -> Object:
    rules = [
        {
            "ApplyServerSideEncryptionByDefault": each["ServerSideEncryptionByDefault"],
            "BucketKeyEnabled": each.get("BucketKeyEnabled", False),
        }
        for each in value["ServerSideEncryptionConfiguration"]
    ]
    return {"ServerSideEncryptionConfiguration": {"Rules": rules}}


def _lifecycle(value: Object) -> Object:
    return {"LifecycleConfiguration": {"Rules": [_rule(each) for each in value["Rules"]]}}


def _rule(rule: Object) -> Object:
    kept = ("NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload", "Status")
    found: Object = {key: rule[key] for key in kept if key in rule}
    found["Filter"] = {"Prefix": rule.get("Prefix", "")}
    if "Id" in rule:
        found["ID"] = rule["Id"]
    if "ExpirationInDays" in rule:
        found["Expiration"] = {"Days": rule["ExpirationInDays"]}
    return found


class Bucket(Handler):
    """A bucket and its settings."""

    kind = "AWS::S3::Bucket"
    service = "s3"
    creates = ("CreateBucket", "")
    identity = ("BucketName",)
    renamed: ClassVar = {"BucketName": "Bucket"}
    deletes = ("DeleteBucket", "Bucket")
    describes = ("HeadBucket", "Bucket")
    answers: ClassVar = {
        "Arn": "arn:aws:s3:::{id}",
        "RegionalDomainName": "{id}.s3.{region}.amazonaws.com",
    }
    owner = "Bucket"
    settings: ClassVar = {
        "VersioningConfiguration": Setting("PutBucketVersioning"),
        "BucketEncryption": Setting("PutBucketEncryption", "DeleteBucketEncryption", _encryption),
        "PublicAccessBlockConfiguration": Setting("PutPublicAccessBlock"),
        "OwnershipControls": Setting("PutBucketOwnershipControls"),
        "LifecycleConfiguration": Setting(
            "PutBucketLifecycleConfiguration", "DeleteBucketLifecycle", _lifecycle
        ),
        "Tags": Setting(
            "PutBucketTagging", "DeleteBucketTagging", lambda tags: {"Tagging": {"TagSet": tags}}
        ),
    }

    def create(self, context: Context, properties: Object) -> str:
        """Make the bucket."""
        given = {"BucketName": context.new_name(63).lower(), **properties}
        if context.region != "us-east-1":
            given["CreateBucketConfiguration"] = {"LocationConstraint": context.region}
        return super().create(context, given)


class BucketPolicy(Handler):
    """A bucket's policy; its physical id is the bucket's name."""

    kind = "AWS::S3::BucketPolicy"
    service = "s3"
    creates = ("PutBucketPolicy", "")
    identity = ("Bucket",)
    renamed: ClassVar = {"PolicyDocument": "Policy"}
    updates = ("PutBucketPolicy",)
    deletes = ("DeleteBucketPolicy", "Bucket")


HANDLERS: tuple[Handler, ...] = (Bucket(), BucketPolicy())
