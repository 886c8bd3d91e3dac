"""The ports of Lustre and EFS."""

import pytest

from tests.guards.slips import ABSENT, in_stack, in_template

GROUP = "EC2::SecurityGroup LustreSecurityGroup"
NODES_IN = "EC2::SecurityGroupIngress NodesFromServers988"
ANYBODY = {"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988, "CidrIp": "0.0.0.0/0"}


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


def test_efs():
    """EFS has an address in the zone of the GPUs, in a group that admits NFS."""
    nodes = {"Fn::ImportValue": "techpulse-Network:ExportsOutputFnGetAttNodeSecurityGroupGroupId"}
    zone = {"Fn::ImportValue": "techpulse-Network:ExportsOutputRefPrivateSubnetuseast2b09145DBA"}

    def efs(port, subnet):
        rule = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port}
        group = {"SecurityGroupIngress": [{**rule, "SourceSecurityGroupId": nodes}]}
        target = {"FileSystemId": {"Ref": "Homes"}, "SubnetId": subnet}
        target["SecurityGroups"] = [{"Fn::GetAtt": ["Nfs", "GroupId"]}]
        key = {"Encrypted": True, "KmsKeyId": {"Fn::GetAtt": ["Key", "Arn"]}}
        keep = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
        bodies = {
            "Homes": {"Type": "AWS::EFS::FileSystem", "Properties": key, **keep},
            "Nfs": {"Type": "AWS::EC2::SecurityGroup", "Properties": group},
            "Target": {"Type": "AWS::EFS::MountTarget", "Properties": target},
        }
        return in_stack("Storage", lambda old: {**old, **bodies}) - {"REFERENCE"}  # no output

    assert efs(2049, zone) == set()
    assert efs(2048, zone) == {"NETWORK_PART"}
    assert efs(2049, "subnet-0123456789abcdef0") == {"NETWORK_PART"}
