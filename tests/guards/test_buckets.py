"""Buckets of data and of access logs."""

import pytest

from tests.guards.slips import ABSENT, in_template

BUCKET, LOGS = "S3::Bucket Bucket", "S3::Bucket AccessLogs"
POLICY, LOG_POLICY = "S3::BucketPolicy BucketPolicy", "S3::BucketPolicy AccessLogsPolicy"
DEFAULT = "BucketEncryption ServerSideEncryptionConfiguration 0 ServerSideEncryptionByDefault"
RULE = "LifecycleConfiguration Rules 0"
KEY = {"Fn::GetAtt": ["Key", "Arn"]}
OBJECTS = {"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/*"]]}
INNER = {"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/data/*"]]}
PUBLIC = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": OBJECTS}


def _rule(**parts):
    return lambda old: [*old, {"Id": "Added", "Status": "Enabled", **parts}]


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (BUCKET, "PublicAccessBlockConfiguration", ABSENT, "OPEN_TO_ALL"),
        (BUCKET, "PublicAccessBlockConfiguration BlockPublicAcls", False, "OPEN_TO_ALL"),
        (POLICY, "PolicyDocument Statement", lambda old: [*old, PUBLIC], "OPEN_TO_ALL"),
        (BUCKET, "OwnershipControls", ABSENT, "BUCKET_SETTINGS"),
        (BUCKET, DEFAULT, {"SSEAlgorithm": "AES256"}, "ENCRYPTION"),
        (BUCKET, f"{DEFAULT} KMSMasterKeyID", ABSENT, "ENCRYPTION"),
        (BUCKET, f"{DEFAULT} SSEAlgorithm", "aes", "ENCRYPTION"),
        (BUCKET, "VersioningConfiguration Status", "Suspended", "BUCKET_SETTINGS"),
        (BUCKET, f"{RULE} ExpirationInDays", 30, "EXPIRES"),
        (
            BUCKET,
            "LifecycleConfiguration Rules",
            _rule(Prefix="data/", ExpirationInDays=9),
            "EXPIRES",
        ),
        (
            BUCKET,
            "LifecycleConfiguration Rules",
            _rule(Transitions=[{"StorageClass": "GLACIER", "TransitionInDays": 30}]),
            "EXPIRES",
        ),
        (LOGS, DEFAULT, {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}, "BUCKET_SETTINGS"),
        (LOG_POLICY, "PolicyDocument Statement 2 Action", "s3:GetObject", "BUCKET_SETTINGS"),
        (LOG_POLICY, "PolicyDocument Statement 2 Condition", ABSENT, "BUCKET_SETTINGS"),
        (POLICY, "PolicyDocument Statement 0 Effect", "Allow", "BUCKET_SETTINGS"),
        (POLICY, "PolicyDocument Statement 0 Resource 1", INNER, "BUCKET_SETTINGS"),
        (POLICY, "PolicyDocument Statement 1", ABSENT, "BUCKET_SETTINGS"),
        (POLICY, "PolicyDocument Statement 0 Condition", ABSENT, "POLICY"),
    ],
)
def test_mistakes(resource, path, value, code):
    """Data that go, or that others read, are found."""
    assert code in in_template(resource, path, value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{RULE} NoncurrentVersionExpiration NoncurrentDays", 90),
        (
            "LifecycleConfiguration Rules",
            _rule(Transitions=[{"StorageClass": "INTELLIGENT_TIERING", "TransitionInDays": 0}]),
        ),
        ("LifecycleConfiguration Rules", _rule(Prefix="tmp/", ExpirationInDays=9)),
        ("BucketName", "own-data"),
    ],
)
def test_other_choices(path, value):
    """What deletes nothing that a job reads is left to its owner."""
    assert in_template(BUCKET, path, value) == set()
