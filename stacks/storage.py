"""The Storage stack: file systems and the data bucket, which outlive the cluster."""

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from megatron_eks.plan.cluster import ClusterPlan
from stacks.base import BaseStack
from stacks.buckets import bucket_policy, private_bucket
from stacks.efs import SharedHomes
from stacks.job_role import job_role
from stacks.lustre import LustreFileSystems
from stacks.place import Place
from stacks.policies import same_account, statement


class StorageStack(BaseStack):
    """File systems in the zones of the GPUs, and a bucket, encrypted with a key of their own."""

    def __init__(self, scope: Construct, plan: ClusterPlan, place: Place | None) -> None:
        super().__init__(scope, plan, "Storage", "File system and data bucket")
        storage = plan.storage
        self._removal = cdk.RemovalPolicy.RETAIN if storage.retain else cdk.RemovalPolicy.DESTROY
        key = storage.kms_key_arn or self.encryption_key(
            "Key", description=f"Data and checkpoints of {plan.name}", removal=self._removal
        )
        if place is not None and not storage.existing:
            LustreFileSystems(
                self,
                cluster=plan.name,
                plans=storage.file_systems,
                place=place,
                key=key,
                removal=self._removal,
            )
        bucket = self._bucket(key)
        cdk.CfnOutput(self, "BucketName", value=bucket.ref)
        # Here and not with the cluster: another job's bucket must not touch a stack with nodes.
        self.job_role = job_role(self, plan, bucket=bucket.attr_arn, key=key)
        cdk.CfnOutput(self, "JobRoleArn", value=self.job_role)
        if place is not None and storage.efs:
            homes = SharedHomes(
                self,
                "Efs",
                name=plan.name,
                place=place,
                key=key,
                uid=plan.platform.pod_uid,
                removal=self._removal,
            )
            cdk.CfnOutput(self, "EfsId", value=homes.file_system_id)
            cdk.CfnOutput(self, "EfsAccessPointId", value=homes.access_point_id)

    def _bucket(self, key: str) -> s3.CfnBucket:
        """Make the bucket for data and checkpoints, and one for the record of who read them."""
        # S3 writes its logs with its own key: another would need a grant to the log service.
        access_logs = private_bucket(
            self,
            "AccessLogs",
            removal=self._removal,
            lifecycle=s3.CfnBucket.RuleProperty(
                id="Expire", status="Enabled", expiration_in_days=90
            ),
        )
        bucket = private_bucket(
            self,
            "Bucket",
            removal=self._removal,
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
        bucket_policy(self, "BucketPolicy", bucket=bucket, removal=self._removal)
        # Amazon S3 User Guide, "Enabling Amazon S3 server access logging".
        delivery = statement(
            ["s3:PutObject"],
            [f"{access_logs.attr_arn}/*"],
            principal={"Service": "logging.s3.amazonaws.com"},
            condition={**same_account(self.account), "ArnLike": {"aws:SourceArn": bucket.attr_arn}},
        )
        bucket_policy(
            self,
            "AccessLogsPolicy",
            bucket=access_logs,
            removal=self._removal,
            statements=[delivery],
        )
        return bucket
