"""The Storage stack: file systems and the data bucket, which outlive the cluster."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_s3 as s3
from constructs import Construct

from megatron_eks.config.outputs import team_key
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.stacks.base import Place, encryption_key
from megatron_eks.stacks.efs import SharedHomes
from megatron_eks.stacks.lustre import LustreFileSystems
from megatron_eks.stacks.pod_roles import job_role
from megatron_eks.stacks.policies import Statement, document, same_account, statement

_WITH_THE_STACK = ["AWS::EKS::PodIdentityAssociation", "AWS::IAM::Role"]


class PlannedStorage(Construct):
    """What outlives a cluster; without a place, the bucket and the role of jobs alone."""

    def __init__(
        self, scope: Construct, construct_id: str, *, plan: ClusterPlan, place: Place | None
    ) -> None:
        super().__init__(scope, construct_id)
        storage = plan.storage
        # Rules of security groups and policies of buckets stay with what they protect.
        cdk.RemovalPolicies.of(self).apply(
            cdk.RemovalPolicy.RETAIN if storage.retain else cdk.RemovalPolicy.DESTROY,
            exclude_resource_types=_WITH_THE_STACK,
        )
        key = storage.kms_key_arn or encryption_key(
            self,
            "Key",
            region=plan.region,
            description=f"Data and checkpoints of {plan.name}",
        )
        self.key_arn = key
        """Encrypts bucket and file systems."""
        self.file_systems: list[fsx.CfnFileSystem] = []
        """FSx for Lustre: one, or one in each zone with a pool."""
        if place is not None and not storage.existing:
            lustre = LustreFileSystems(
                self, cluster=plan.name, plans=storage.file_systems, place=place, key=key
            )
            self.file_systems = lustre.file_systems
        bucket = self._bucket(key)
        self.bucket = bucket
        """For data and checkpoints."""
        cdk.CfnOutput(self, "BucketName", value=bucket.ref)
        # Here and not with the cluster: another job's bucket must not touch a stack with nodes.
        self.job_role_arns: dict[str, str] = {}
        """By namespace, for `AWS::EKS::PodIdentityAssociation`: what pods of jobs may do."""
        for each in plan.spaces:
            role = job_role(self, each, bucket=bucket.attr_arn, key=key)
            self.job_role_arns[each.platform.namespace] = role
            own = None if each.platform.first else each.platform.team
            cdk.CfnOutput(self, f"JobRoleArn{team_key(own)}", value=role)
        self.efs: SharedHomes | None = None
        """The shared home directories, if asked for."""
        if place is not None and storage.efs:
            self.efs = homes = SharedHomes(
                self,
                "Efs",
                name=plan.name,
                place=place,
                key=key,
                uid=plan.platform.pod_uid,
            )
            cdk.CfnOutput(self, "EfsId", value=homes.file_system_id)
            cdk.CfnOutput(self, "EfsAccessPointId", value=homes.access_point_id)

    def _bucket(self, key: str) -> s3.CfnBucket:
        # S3 writes its logs with its own key: another would need a grant to the log service.
        access_logs = private_bucket(
            self,
            "AccessLogs",
            lifecycle=s3.CfnBucket.RuleProperty(
                id="Expire", status="Enabled", expiration_in_days=90
            ),
        )
        bucket = private_bucket(
            self,
            "Bucket",
            key=key,
            versioned=True,
            access_logs=access_logs,
            lifecycle=s3.CfnBucket.RuleProperty(
                id="CleanUp",
                status="Enabled",
                abort_incomplete_multipart_upload=s3.CfnBucket.AbortIncompleteMultipartUploadProperty(
                    days_after_initiation=7
                ),
                noncurrent_version_expiration=s3.CfnBucket.NoncurrentVersionExpirationProperty(
                    noncurrent_days=30
                ),
            ),
        )
        bucket_policy(self, "BucketPolicy", bucket=bucket)
        # Amazon S3 User Guide, "Enabling Amazon S3 server access logging".
        delivery = statement(
            ["s3:PutObject"],
            [f"{access_logs.attr_arn}/*"],
            principal={"Service": "logging.s3.amazonaws.com"},
            condition={**same_account(), "ArnLike": {"aws:SourceArn": bucket.attr_arn}},
        )
        bucket_policy(
            self,
            "AccessLogsPolicy",
            bucket=access_logs,
            statements=[delivery],
        )
        return bucket


_MINIMUM_TLS = 1.2


def private_bucket(
    scope: Construct,
    construct_id: str,
    *,
    lifecycle: s3.CfnBucket.RuleProperty,
    key: str | None = None,
    versioned: bool = False,
    access_logs: s3.CfnBucket | None = None,
) -> s3.CfnBucket:
    """Make a bucket; without a key of ours, S3 encrypts with its own."""
    return s3.CfnBucket(
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


def bucket_policy(
    scope: Construct,
    construct_id: str,
    *,
    bucket: s3.CfnBucket,
    statements: Sequence[Statement] = (),
) -> None:
    """Refuse what is not encrypted on the way, whoever asks; a bucket that stays keeps the rule."""
    arn = bucket.attr_arn
    everything = [arn, f"{arn}/*"]
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
    )
