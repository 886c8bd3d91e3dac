"""Buckets of data and of access logs, keys, and what they encrypt."""

import pytest

from tests.guards.slips import ABSENT, in_stack, in_template

BUCKET, LOGS = "S3::Bucket Bucket", "S3::Bucket AccessLogs"
POLICY, LOG_POLICY = "S3::BucketPolicy BucketPolicy", "S3::BucketPolicy AccessLogsPolicy"
DEFAULT = "BucketEncryption ServerSideEncryptionConfiguration 0 ServerSideEncryptionByDefault"
RULE = "LifecycleConfiguration Rules 0"
KEY = {"Fn::GetAtt": ["Key", "Arn"]}
OBJECTS = {"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/*"]]}
INNER = {"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/data/*"]]}
PUBLIC = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": OBJECTS}
TO_LOGS = "KeyPolicy Statement 1"
CONTEXT = f"{TO_LOGS} Condition ArnLike kms:EncryptionContext:aws:logs:arn"
OTHER_GROUP = "arn:aws:logs:us-east-2:111122223333:log-group:/other"


def _rule(**parts):
    return lambda old: [*old, {"Id": "Added", "Status": "Enabled", **parts}]


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (BUCKET, "PublicAccessBlockConfiguration", ABSENT, "OPEN_TO_ALL"),
        (BUCKET, "PublicAccessBlockConfiguration BlockPublicAcls", False, "OPEN_TO_ALL"),
        (POLICY, "PolicyDocument Statement", lambda old: [*old, PUBLIC], "OPEN_TO_ALL"),
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


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("EnableKeyRotation", False, "ENCRYPTION"),
        ("Enabled", False, "KEY_POLICY"),
        ("KeySpec", "RSA_2048", "KEY_POLICY"),
        ("KeyPolicy Statement 0 Action", ["kms:Decrypt"], "KEY_POLICY"),
        ("KeyPolicy Statement 0 Principal", {"AWS": "arn:aws:iam::1:role/a"}, "KEY_POLICY"),
        (TO_LOGS, ABSENT, "KEY_POLICY"),
        (f"{TO_LOGS} Action 2", ABSENT, "KEY_POLICY"),
        (f"{TO_LOGS} Principal", {"Service": "logs.us-east-1.amazonaws.com"}, "KEY_POLICY"),
        (CONTEXT, OTHER_GROUP, "KEY_POLICY"),
        (f"{TO_LOGS} Condition", ABSENT, "KEY_POLICY"),
    ],
)
def test_policies(path, value, code):
    """A key that somebody who needs it may not use is found."""
    assert in_template("KMS::Key LogKey", path, value) == {code}


def test_several_groups_of_logs():
    """A key may serve more log groups than ours."""
    assert in_template("KMS::Key LogKey", CONTEXT, lambda old: [OTHER_GROUP, old]) == set()


def test_users():
    """What lies beside a key uses it."""
    assert in_template("FSx::FileSystem", "KmsKeyId", ABSENT) == {"ENCRYPTION"}
    assert in_template("Logs::LogGroup", "KmsKeyId", {"Ref": "Key"}) == {"ENCRYPTION"}


@pytest.mark.parametrize("resource", ["FSx::FileSystem", "S3::Bucket Bucket", "S3::BucketPolicy"])
@pytest.mark.parametrize("policy", ["DeletionPolicy", "UpdateReplacePolicy"])
def test_lifetime(resource, policy):
    """Data stay when their stack goes, and when they are replaced."""
    assert in_template(resource, policy, "Delete") == {"LUSTRE_RETAINED"}
    assert in_template(resource, policy, ABSENT) == {"LUSTRE_RETAINED"}


def test_lifetime_of_keys():
    """A key stays as long as what it encrypts, and may go with it."""

    def deleted(*kinds):
        goes = {"DeletionPolicy": "Delete", "UpdateReplacePolicy": "Delete"}

        def change(bodies):
            return {
                n: {**e, **goes} if e["Type"].split("::")[1] in kinds else e
                for n, e in bodies.items()
            }

        return in_stack("Storage", change)

    assert deleted("KMS") == {"KEY_LOST"}
    assert deleted("KMS", "S3", "FSx", "EC2") == {"LUSTRE_RETAINED"}
