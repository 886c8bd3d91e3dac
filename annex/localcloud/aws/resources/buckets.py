"""S3 buckets and their policies."""

import json
from collections.abc import Mapping

from megatron_eks.localcloud.aws.resources.handler import Context, Handler
from megatron_eks.localcloud.aws.values import Object, Value

_NAME_LIMIT = 63


class Bucket(Handler):
    """A bucket and its settings."""

    kind = "AWS::S3::Bucket"
    service = "s3"
    deletes = ("DeleteBucket", "Bucket")

    def create(self, context: Context, properties: Object) -> str:
        """Make the bucket."""
        name = str(properties.get("BucketName") or context.new_name(_NAME_LIMIT).lower())
        place = (
            {"CreateBucketConfiguration": {"LocationConstraint": context.region}}
            if context.region != "us-east-1"
            else {}
        )
        context.clients("s3").create_bucket(Bucket=name, **place)
        context.note(name)
        self._settings(context, name, {}, properties)
        return name

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change settings."""
        self._settings(context, physical_id, old, new)

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

    @staticmethod
    def _settings(context: Context, name: str, old: Object, new: Object) -> None:
        s3 = context.clients("s3")

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
    deletes = ("DeleteBucketPolicy", "Bucket")

    def create(self, context: Context, properties: Object) -> str:
        """Set the policy."""
        self.update(context, properties["Bucket"], {}, properties)
        return str(properties["Bucket"])

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Set the policy."""
        del old
        context.clients("s3").put_bucket_policy(
            Bucket=physical_id, Policy=json.dumps(new["PolicyDocument"])
        )


HANDLERS: tuple[Handler, ...] = (Bucket(), BucketPolicy())
