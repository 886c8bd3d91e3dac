"""FSx for Lustre: its settings, its place, its data repositories and what the charts read."""

import pytest

from tests.guards.slips import ABSENT, in_stack, in_template

SYSTEM = "FSx::FileSystem"
GROUP = "EC2::SecurityGroup LustreSecurityGroup"
NODES_IN = "EC2::SecurityGroupIngress NodesFromServers988"
ANYBODY = {"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988, "CidrIp": "0.0.0.0/0"}


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
    """A link belongs to a file system, and brings what is there."""
    link = {"FileSystemId": {"Ref": "Lustre"}, "DataRepositoryPath": "s3://corpora/a"}
    at_once = {"BatchImportMetaDataOnCreate": True}

    def found(parts):
        properties = {**link, **at_once, **parts}
        body = {"Type": "AWS::FSx::DataRepositoryAssociation", "Properties": properties}
        return in_stack("Storage", lambda bodies: {**bodies, "Link": body})

    right = {"FileSystemPath": "/a"}
    assert found(right) == set()
    assert found({**right, "FileSystemId": None}) == {"DATA_REPOSITORY"}
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
