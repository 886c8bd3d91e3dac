"""S3 buckets and their policies."""

from collections.abc import Mapping
from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import Context, Handler
from megatron_eks.localcloud.aws.values import Object, Value


class Bucket(Handler):
    """A bucket and its settings."""

    kind = "AWS::S3::Bucket"
    service = "s3"
    creates = ("CreateBucket", "")
    identity = ("BucketName",)
    renamed: ClassVar = {"BucketName": "Bucket"}
    deletes = ("DeleteBucket", "Bucket")

    def create(self, context: Context, properties: Object) -> str:
        """Make the bucket."""
        given = {"BucketName": context.new_name(63).lower(), **properties}
        if context.region != "us-east-1":
            given["CreateBucketConfiguration"] = {"LocationConstraint": context.region}
        return super().create(context, given)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return ARN and names."""
        del properties
        context.clients("s3").head_bucket(Bucket=physical_id)
        return {
            "Arn": f"arn:aws:s3:::{physical_id}",
            "DomainName": f"{physical_id}.s3.amazonaws.com",
            "RegionalDomainName": f"{physical_id}.s3.{context.region}.amazonaws.com",
        }

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change settings."""
        s3, name = context.clients("s3"), physical_id

        def changed(key: str) -> Value:
            return new[key] if key in new and new[key] != old.get(key) else None

        if value := changed("VersioningConfiguration"):
            s3.put_bucket_versioning(Bucket=name, VersioningConfiguration=value)
        if value := changed("BucketEncryption"):
            rules = [
                {
                    "ApplyServerSideEncryptionByDefault": each["ServerSideEncryptionByDefault"],
                    "BucketKeyEnabled": each.get("BucketKeyEnabled", False),
                }
                for each in value["ServerSideEncryptionConfiguration"]
            ]
            s3.put_bucket_encryption(
                Bucket=name, ServerSideEncryptionConfiguration={"Rules": rules}
            )
        if value := changed("PublicAccessBlockConfiguration"):
            s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=value)
        if value := changed("OwnershipControls"):
            s3.put_bucket_ownership_controls(Bucket=name, OwnershipControls=value)
        if value := changed("LifecycleConfiguration"):
            rules = [_lifecycle_rule(each) for each in value["Rules"]]
            s3.put_bucket_lifecycle_configuration(
                Bucket=name, LifecycleConfiguration={"Rules": rules}
            )
        if value := changed("Tags"):
            s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": value})
        for key, delete in (
            ("BucketEncryption", s3.delete_bucket_encryption),
            ("LifecycleConfiguration", s3.delete_bucket_lifecycle),
            ("Tags", s3.delete_bucket_tagging),
        ):
            if key in old and key not in new:
                delete(Bucket=name)


def _lifecycle_rule(rule: Object) -> Object:
    """Write a rule of a template as S3's operation takes it."""
    kept = (
        "NoncurrentVersionExpiration",
        "AbortIncompleteMultipartUpload",
        "Status",
    )
    found: Object = {key: rule[key] for key in kept if key in rule}
    found["Filter"] = {"Prefix": rule.get("Prefix", "")}
    if "Id" in rule:
        found["ID"] = rule["Id"]
    if "ExpirationInDays" in rule:
        found["Expiration"] = {"Days": rule["ExpirationInDays"]}
    return found


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
