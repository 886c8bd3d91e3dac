"""FSx for Lustre, buckets, repositories of images, and keys."""

import json

import pytest

from tests.guards.slips import ABSENT, in_stack, in_template

SYSTEM = "FSx::FileSystem"
GROUP = "EC2::SecurityGroup LustreSecurityGroup"
NODES_IN = "EC2::SecurityGroupIngress NodesFromServers988"
ANYBODY = {"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988, "CidrIp": "0.0.0.0/0"}
BUCKET = "S3::Bucket Bucket"
POLICY = "S3::BucketPolicy BucketPolicy"
DEFAULT = "BucketEncryption ServerSideEncryptionConfiguration 0 ServerSideEncryptionByDefault"
LIFECYCLE = "LifecycleConfiguration Rules"
RULE = f"{LIFECYCLE} 0"
INNER = {"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/data/*"]]}
TO_LOGS = "KeyPolicy Statement 1"
CONTEXT = f"{TO_LOGS} Condition ArnLike kms:EncryptionContext:aws:logs:arn"
OTHER_GROUP = "arn:aws:logs:us-east-2:111122223333:log-group:/other"
REPOSITORY, RULES = "ECR::Repository", "LifecyclePolicy LifecyclePolicyText"
FILTERS, EXPIRES = "ImageTagMutabilityExclusionFilters", "EXPIRES"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("StorageCapacity", 3000),
        ("StorageCapacity", 1000),
        ("StorageType", "HDD"),
        ("FileSystemType", "ONTAP"),
        ("FileSystemTypeVersion", "2.10"),
        ("FileSystemTypeVersion", ABSENT),
        ("LustreConfiguration DeploymentType", "PERSISTENT_1"),
        ("LustreConfiguration PerUnitStorageThroughput", 501),
        ("LustreConfiguration PerUnitStorageThroughput", ABSENT),
        ("LustreConfiguration MetadataConfiguration", ABSENT),
        ("LustreConfiguration EfaEnabled", "yes"),
    ],
)
def test_settings_that_fsx_refuses(path, value):
    """They are found before the stack fails after minutes."""
    assert "LUSTRE_SETTINGS" in in_template(SYSTEM, path, value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("StorageCapacity", 2400),
        ("StorageCapacity", 7200),
        ("LustreConfiguration PerUnitStorageThroughput", 1000),
        ("LustreConfiguration DataCompressionType", "NONE"),
        ("LustreConfiguration WeeklyMaintenanceStartTime", "1:05:00"),
        ("LustreConfiguration AutomaticBackupRetentionDays", 7),
    ],
)
def test_other_settings(path, value):
    """A person may choose others that FSx takes."""
    assert in_template(SYSTEM, path, value) == set()


def test_zone():
    """A file system in a zone without GPUs is reported."""

    def in_another_zone(subnets):
        name = subnets[0]["Fn::ImportValue"]
        return [{"Fn::ImportValue": name.replace("2b09145DBA", "2a77230C67")}]

    assert in_template(SYSTEM, "SubnetIds", in_another_zone) == {"SUBNETS"}


def test_data_repositories():
    """A link brings what is there."""
    link = {"FileSystemId": {"Ref": "Lustre"}, "DataRepositoryPath": "s3://corpora/a"}
    at_once = {"BatchImportMetaDataOnCreate": True}

    def found(parts):
        properties = {**link, **at_once, **parts}
        body = {"Type": "AWS::FSx::DataRepositoryAssociation", "Properties": properties}
        return in_stack("Storage", lambda bodies: {**bodies, "Link": body})

    right = {"FileSystemPath": "/a"}
    assert found(right) == set()
    assert found({**right, "BatchImportMetaDataOnCreate": False}) == {"DATA_REPOSITORY"}


@pytest.mark.parametrize(
    ("resource", "path", "value"),
    [
        (GROUP, "SecurityGroupIngress 0 FromPort", 989),
        (GROUP, "SecurityGroupIngress 1 ToPort", 1021),
        (GROUP, "SecurityGroupIngress 1", ABSENT),
        (GROUP, "SecurityGroupEgress", ABSENT),
        (GROUP, "SecurityGroupEgress 0 DestinationSecurityGroupId", ABSENT),
        (NODES_IN, "IpProtocol", "udp"),
        (NODES_IN, "GroupId", {"Fn::GetAtt": ["LustreSecurityGroup", "GroupId"]}),
        ("FSx::FileSystem", "SecurityGroupIds", []),
        ("FSx::FileSystem", "DependsOn", ABSENT),
        ("FSx::FileSystem", "DependsOn 0", ABSENT),
    ],
)
def test_closed_ports(resource, path, value):
    """Each way that Lustre needs is asked for, and before the file system."""
    assert in_template(resource, path, value) == {"LUSTRE_PORTS"}


@pytest.mark.parametrize("rule", ["NodesFromServers988", "ServersToServers1018"])
def test_missing_rule(rule):
    """A rule that is gone is missed."""
    rest = lambda bodies: {name: body for name, body in bodies.items() if name != rule}  # noqa: E731
    assert in_stack("Storage", rest) == {"LUSTRE_PORTS"}


def test_everybody():
    """A file system that everybody reaches is an error, and the addresses of a VPC are not."""
    within = {**ANYBODY, "CidrIp": "10.0.0.0/16"}
    ingress = "SecurityGroupIngress"
    assert in_template(GROUP, ingress, lambda old: [*old, ANYBODY]) == {"OPEN_TO_ALL"}
    assert in_template(GROUP, ingress, lambda old: [*old, within]) == set()


def test_efa():
    """EFA is not TCP: rules for ports do not let it through."""
    found = in_template("FSx::FileSystem", "LustreConfiguration EfaEnabled", value=True)
    assert "LUSTRE_PORTS" in found


def _to(kind, days):
    return {"StorageClass": kind, "TransitionInDays": days}


def _rule(**parts):
    return lambda old: [*old, {"Id": "Added", "Status": "Enabled", **parts}]


def lifecycle(**selection: object) -> str:
    """Return a lifecycle policy of one rule."""
    chosen = {"countType": "sinceImagePushed", "countUnit": "days", "countNumber": 30, **selection}
    rule = {"rulePriority": 1, "selection": chosen, "action": {"type": "expire"}}
    return json.dumps({"rules": [rule]})


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (BUCKET, "PublicAccessBlockConfiguration", ABSENT, "OPEN_TO_ALL"),
        (BUCKET, "PublicAccessBlockConfiguration BlockPublicAcls", False, "OPEN_TO_ALL"),
        (BUCKET, f"{DEFAULT} SSEAlgorithm", "aes", "ENCRYPTION"),
        (BUCKET, "VersioningConfiguration Status", "Suspended", "BUCKET_SETTINGS"),
        (BUCKET, f"{RULE} ExpirationInDays", 30, "EXPIRES"),
        (BUCKET, LIFECYCLE, _rule(Prefix="data/", ExpirationInDays=9), "EXPIRES"),
        (BUCKET, LIFECYCLE, _rule(Transitions=[_to("GLACIER", 30)]), "EXPIRES"),
        (POLICY, "PolicyDocument Statement 0 Effect", "Allow", "BUCKET_SETTINGS"),
        (POLICY, "PolicyDocument Statement 0 Resource 1", INNER, "BUCKET_SETTINGS"),
        (POLICY, "PolicyDocument Statement 1", ABSENT, "BUCKET_SETTINGS"),
        (POLICY, "PolicyDocument Statement 0 Condition", ABSENT, "BUCKET_SETTINGS"),
        (REPOSITORY, "ImageTagMutability", "MUTABLE", "ENCRYPTION"),
        (REPOSITORY, f"{FILTERS} 0 {FILTERS[:-1]}Value", "*", "ENCRYPTION"),
        ("CodeBuild::Project", "Environment PrivilegedMode", False, "PROPERTY"),
        ("CodeBuild::Project", "Environment Type", "ARM_CONTAINER", "PROPERTY"),
        ("CodeBuild::Project", "Source Type", "NO_SOURCE", "PROPERTY"),
        ("CodeBuild::Project", "Environment ComputeType", "BUILD_GENERAL1_SMALL", "PROPERTY"),
        (REPOSITORY, "EncryptionConfiguration", ABSENT, "ENCRYPTION"),
        (REPOSITORY, RULES, lifecycle(tagStatus="any"), EXPIRES),
        (REPOSITORY, RULES, lifecycle(tagStatus="tagged", tagPatternList=["*"]), EXPIRES),
    ],
)
def test_mistakes_in_buckets_and_repositories(resource, path, value, code):
    """Data or images that go, or that others read or change, are found."""
    assert code in in_template(resource, path, value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{RULE} NoncurrentVersionExpiration NoncurrentDays", 90),
        (LIFECYCLE, _rule(Transitions=[_to("INTELLIGENT_TIERING", 0)])),
        (LIFECYCLE, _rule(Prefix="tmp/", ExpirationInDays=9)),
        ("BucketName", "own-data"),
    ],
)
def test_other_buckets(path, value):
    """What deletes nothing that a job reads is left to its owner."""
    assert in_template(BUCKET, path, value) == set()


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("EnableKeyRotation", False, "ENCRYPTION"),
        ("Enabled", False, "KEY_POLICY"),
        ("KeyPolicy Statement 0 Action", ["kms:Decrypt"], "KEY_POLICY"),
        ("KeyPolicy Statement 0 Principal", {"AWS": "arn:aws:iam::1:role/a"}, "KEY_POLICY"),
        (TO_LOGS, ABSENT, "KEY_POLICY"),
        (f"{TO_LOGS} Action 2", ABSENT, "KEY_POLICY"),
        (f"{TO_LOGS} Principal", {"Service": "logs.us-east-1.amazonaws.com"}, "KEY_POLICY"),
        (CONTEXT, OTHER_GROUP, "KEY_POLICY"),
        (f"{TO_LOGS} Condition", ABSENT, "KEY_POLICY"),
    ],
)
def test_key_policies(path, value, code):
    """A key that somebody who needs it may not use is found."""
    assert in_template("KMS::Key LogKey", path, value) == {code}


@pytest.mark.parametrize(
    ("resource", "path", "code"),
    [
        ("EFS::FileSystem", "Encrypted", "ENCRYPTION"),
        ("EFS::AccessPoint", "PosixUser", "PROPERTY"),
        ("EFS::AccessPoint", "RootDirectory CreationInfo", "PROPERTY"),
    ],
)
def test_homes(resource, path, code):
    """They are encrypted, and a directory of the jobs' user."""
    assert code in in_template(resource, path, ABSENT, "homes")


def test_several_groups_of_logs():
    """A key may serve more log groups than ours."""
    assert in_template("KMS::Key LogKey", CONTEXT, lambda old: [OTHER_GROUP, old]) == set()


@pytest.mark.parametrize("resource", [SYSTEM, BUCKET, POLICY, REPOSITORY])
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


@pytest.mark.parametrize(
    ("resource", "path", "value"),
    [
        (REPOSITORY, RULES, lifecycle(tagStatus="untagged", countNumber=7)),
        (REPOSITORY, RULES, lifecycle(tagStatus="tagged", tagPrefixList=["dev-"])),
    ],
)
def test_other_images_that_work(resource, path, value):
    """Nothing is found in them."""
    assert in_template(resource, path, value) == set()
