"""Keys and what they encrypt."""

import pytest

from tests.guards.slips import ABSENT, in_stack, in_template

KEY = "KMS::Key"
LOGS = "KeyPolicy Statement 1"
CONTEXT = f"{LOGS} Condition ArnLike kms:EncryptionContext:aws:logs:arn"
OTHER_GROUP = "arn:aws:logs:us-east-2:111122223333:log-group:/other"


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("EnableKeyRotation", False, "ENCRYPTION"),
        ("Enabled", False, "KEY_POLICY"),
        ("KeySpec", "RSA_2048", "KEY_POLICY"),
        ("KeyPolicy Statement 0 Action", ["kms:Decrypt"], "KEY_POLICY"),
        ("KeyPolicy Statement 0 Principal", {"AWS": "arn:aws:iam::1:role/a"}, "KEY_POLICY"),
        (LOGS, ABSENT, "KEY_POLICY"),
        (f"{LOGS} Action 2", ABSENT, "KEY_POLICY"),
        (f"{LOGS} Principal", {"Service": "logs.us-east-1.amazonaws.com"}, "KEY_POLICY"),
        (CONTEXT, OTHER_GROUP, "KEY_POLICY"),
        (f"{LOGS} Condition", ABSENT, "KEY_POLICY"),
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
