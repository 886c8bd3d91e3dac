"""Private buckets: encrypted, closed to the public, and reached over TLS alone."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.policies import Statement, document, statement

_MINIMUM_TLS = 1.2


def private_bucket(
    scope: Construct,
    construct_id: str,
    *,
    removal: cdk.RemovalPolicy,
    lifecycle: s3.CfnBucket.RuleProperty,
    key: str | None = None,
    versioned: bool = False,
    access_logs: s3.CfnBucket | None = None,
) -> s3.CfnBucket:
    """Make a bucket; without a key of ours, S3 encrypts with its own."""
    bucket = s3.CfnBucket(
        scope,
        construct_id,
        bucket_encryption=s3.CfnBucket.BucketEncryptionProperty(
            server_side_encryption_configuration=[
                s3.CfnBucket.ServerSideEncryptionRuleProperty(
                    # One call to KMS for many objects instead of one for each.
                    bucket_key_enabled=key is not None,
                    server_side_encryption_by_default=s3.CfnBucket.ServerSideEncryptionByDefaultProperty(
                        sse_algorithm="aws:kms" if key else "AES256", kms_master_key_id=key
                    ),
                )
            ]
        ),
        public_access_block_configuration=s3.CfnBucket.PublicAccessBlockConfigurationProperty(
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
        ),
        ownership_controls=s3.CfnBucket.OwnershipControlsProperty(
            rules=[
                s3.CfnBucket.OwnershipControlsRuleProperty(object_ownership="BucketOwnerEnforced")
            ]
        ),
        versioning_configuration=s3.CfnBucket.VersioningConfigurationProperty(status="Enabled")
        if versioned
        else None,
        logging_configuration=s3.CfnBucket.LoggingConfigurationProperty(
            destination_bucket_name=access_logs.ref
        )
        if access_logs
        else None,
        lifecycle_configuration=s3.CfnBucket.LifecycleConfigurationProperty(rules=[lifecycle]),
    )
    bucket.apply_removal_policy(removal)
    return bucket


def bucket_policy(
    scope: Construct,
    construct_id: str,
    *,
    bucket: s3.CfnBucket,
    removal: cdk.RemovalPolicy,
    statements: Sequence[Statement] = (),
) -> None:
    """Refuse what is not encrypted on the way, whoever asks; a bucket that stays keeps the rule."""
    everything = [bucket.attr_arn, f"{bucket.attr_arn}/*"]
    refused: dict[str, dict[str, object]] = {
        "Bool": {"aws:SecureTransport": "false"},
        "NumericLessThan": {"s3:TlsVersion": _MINIMUM_TLS},
    }
    denials = [
        statement(
            ["s3:*"], everything, effect="Deny", principal={"AWS": "*"}, condition={test: values}
        )
        for test, values in refused.items()
    ]
    s3.CfnBucketPolicy(
        scope,
        construct_id,
        bucket=bucket.ref,
        policy_document=document([*denials, *statements]),
    ).apply_removal_policy(removal)
