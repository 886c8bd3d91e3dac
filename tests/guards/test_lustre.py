"""FSx for Lustre: its settings, its place, its data repositories and what the charts read."""

import pytest

from tests.guards.slips import ABSENT, in_stack, in_template

SYSTEM = "FSx::FileSystem"


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
        ("LustreConfiguration DataCompressionType", ABSENT),
        ("LustreConfiguration PerUnitStorageThroughput", 501),
        ("LustreConfiguration PerUnitStorageThroughput", ABSENT),
        ("LustreConfiguration MetadataConfiguration", ABSENT),
        ("LustreConfiguration EfaEnabled", "yes"),
        ("SubnetIds", lambda old: old * 2),
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
    """A link has an absolute path and an address in S3, and overlaps no other."""
    events = {"AutoImportPolicy": {"Events": ["NEW", "CHANGED"]}}
    link = {"FileSystemId": {"Ref": "Lustre"}, "DataRepositoryPath": "s3://corpora/a", "S3": events}
    at_once = {"BatchImportMetaDataOnCreate": True}

    def beside(paths):
        body = {"Type": "AWS::FSx::DataRepositoryAssociation"}
        links = [{**body, "Properties": {**link, **at_once, **each}} for each in paths]
        return lambda bodies: {**bodies, **{f"Link{index}": e for index, e in enumerate(links)}}

    def found(*paths):
        return in_stack("Storage", beside(paths))

    right = {"FileSystemPath": "/a"}
    assert found(right) == set()
    assert found({**right, "S3": {}}) == {"DATA_REPOSITORY"}
    assert found({"FileSystemPath": "a"}) == {"DATA_REPOSITORY"}
    assert found({**right, "DataRepositoryPath": "corpora/a"}) == {"DATA_REPOSITORY"}
    inner = {"FileSystemPath": "/a/b", "DataRepositoryPath": "s3://other"}
    assert found(right, inner) == {"DATA_REPOSITORY"}
