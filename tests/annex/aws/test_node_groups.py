"""Node groups as AWS keeps them: what changes in place, what replaces nodes, what is refused."""

import pytest
from botocore.exceptions import ClientError

from tests.annex.aws.stacks import Stacks

REGION = "eu-west-1"
VERSION = {"Fn::GetAtt": ["Template", "LatestVersionNumber"]}


def template():
    """Return the resources of a cluster with one node group."""
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": ["ec2.amazonaws.com", "eks.amazonaws.com"]},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    subnet = {"VpcId": {"Ref": "Vpc"}}
    return {
        "Vpc": {
            "Type": "AWS::EC2::VPC",
            "Properties": {"CidrBlock": "10.0.0.0/16", "EnableDnsHostnames": True},
        },
        "SubnetA": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {
                **subnet,
                "CidrBlock": "10.0.0.0/18",
                "AvailabilityZone": f"{REGION}a",
            },
        },
        "SubnetB": {
            "Type": "AWS::EC2::Subnet",
            "Properties": {
                **subnet,
                "CidrBlock": "10.0.64.0/18",
                "AvailabilityZone": f"{REGION}b",
            },
        },
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": trust,
                "ManagedPolicyArns": [
                    f"arn:aws:iam::aws:policy/{name}"
                    for name in (
                        "AmazonEKSClusterPolicy",
                        "AmazonEKSWorkerNodePolicy",
                        "AmazonEC2ContainerRegistryPullOnly",
                    )
                ],
            },
        },
        "Cluster": {
            "Type": "AWS::EKS::Cluster",
            "Properties": {
                "Name": "nodes",
                "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                "Version": "1.35",
                "ResourcesVpcConfig": {
                    "SubnetIds": [{"Ref": "SubnetA"}, {"Ref": "SubnetB"}],
                    "EndpointPublicAccess": False,
                    "EndpointPrivateAccess": True,
                },
            },
        },
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {
                "LaunchTemplateData": {
                    "InstanceType": "c5.2xlarge",
                    "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
                    "BlockDeviceMappings": [
                        {
                            "DeviceName": "/dev/xvda",
                            "Ebs": {"VolumeSize": 100, "VolumeType": "gp3", "Encrypted": True},
                        }
                    ],
                }
            },
        },
        "Group": {
            "Type": "AWS::EKS::Nodegroup",
            "Properties": {
                "ClusterName": {"Ref": "Cluster"},
                "NodegroupName": "workers",
                "NodeRole": {"Fn::GetAtt": ["Role", "Arn"]},
                "Subnets": [{"Ref": "SubnetA"}],
                "AmiType": "AL2023_x86_64_STANDARD",
                "ReleaseVersion": "1.35.0-20261101",
                "LaunchTemplate": {"Id": {"Ref": "Template"}, "Version": VERSION},
                "ScalingConfig": {"MinSize": 0, "DesiredSize": 0, "MaxSize": 10},
                "Labels": {"team": "nlp"},
                "Tags": {"owner": "a"},
            },
        },
    }


class Group:
    """One node group, its stack and its nodes."""

    def __init__(self, aws):
        self.stacks = Stacks(aws.client("cloudformation", REGION))
        self.eks, self.ec2 = aws.client("eks", REGION), aws.client("ec2", REGION)

    def update(self, **properties):
        """Change properties of the node group as they were in the beginning."""
        wanted = template()
        for name, value in properties.items():
            wanted["Group"]["Properties"][name] = value
        return self.stacks.update("nodes", wanted)

    def scale(self, nodes):
        """Take or give back nodes, as `meks scale` does."""
        self.eks.update_nodegroup_config(
            clusterName="nodes", nodegroupName="workers", scalingConfig={"desiredSize": nodes}
        )

    @property
    def told(self):
        """What EKS tells of the group."""
        found = self.eks.describe_nodegroup(clusterName="nodes", nodegroupName="workers")
        return found["nodegroup"]

    @property
    def nodes(self):
        """The instances that run for it."""
        found = self.ec2.describe_instances(
            Filters=[
                {"Name": "tag:eks:nodegroup-name", "Values": ["workers"]},
                {"Name": "instance-state-name", "Values": ["running"]},
            ]
        )
        return sorted(
            each["InstanceId"] for one in found["Reservations"] for each in one["Instances"]
        )


@pytest.fixture
def group(aws):
    """Return a group of two nodes, in a cluster of its own."""
    group = Group(aws)
    status = group.stacks.create("nodes", template())
    assert status == "CREATE_COMPLETE", group.stacks.reasons("nodes", "CREATE_FAILED")
    group.scale(2)
    yield group
    status = group.stacks.delete("nodes")
    assert status == "DELETE_COMPLETE", group.stacks.reasons("nodes", "DELETE_FAILED")
    assert group.nodes == []


def test_an_unchanged_block_of_sizes_is_not_sent_again(group):
    """Other settings change in place, and two nodes stay two nodes."""
    nodes = group.nodes
    assert group.update(Labels={"team": "vision"}, Tags={"owner": "b"}) == "UPDATE_COMPLETE"
    assert (group.told["labels"], group.told["tags"]) == ({"team": "vision"}, {"owner": "b"})
    assert (len(nodes), group.nodes) == (2, nodes)


def test_a_block_of_sizes_is_sent_whole_when_a_part_of_it_changed(group):
    """A higher ceiling takes the stale wanted size with it, and the nodes end (eksctl#3532)."""
    sizes = {"MinSize": 0, "DesiredSize": 0, "MaxSize": 20}
    assert group.update(ScalingConfig=sizes) == "UPDATE_COMPLETE"
    assert group.told["scalingConfig"] == {"minSize": 0, "desiredSize": 0, "maxSize": 20}
    assert group.nodes == []


def test_another_ami_release_replaces_every_node(group):
    """The same number of nodes, and none of those that there were."""
    nodes = group.nodes
    assert group.update(ReleaseVersion="1.35.0-20261115") == "UPDATE_COMPLETE"
    assert group.told["releaseVersion"] == "1.35.0-20261115"
    assert len(group.nodes) == 2
    assert not set(nodes) & set(group.nodes)


def test_nodes_without_a_place_are_no_group(group):
    """What could not be made is not there, and does not keep its cluster."""
    wanted = template()
    lost = wanted["Group"]["Properties"] | {"NodegroupName": "lost", "Subnets": ["subnet-0"]}
    lost["ScalingConfig"] = {"MinSize": 0, "DesiredSize": 1, "MaxSize": 10}
    wanted["Lost"] = {"Type": "AWS::EKS::Nodegroup", "Properties": lost}
    assert group.stacks.update("nodes", wanted) == "UPDATE_ROLLBACK_COMPLETE"
    assert "does not exist" in group.stacks.reasons("nodes", "CREATE_FAILED")["Lost"]
    assert group.eks.list_nodegroups(clusterName="nodes")["nodegroups"] == ["workers"]


@pytest.mark.parametrize("other", ["Labels", "Tags", "Taints", "UpdateConfig"])
def test_a_release_cannot_change_together_with_anything_else(group, other):
    """AWS's own message, and the group is what it was (aws-cdk#16644)."""
    value = {
        "Labels": {"team": "vision"},
        "Tags": {"owner": "b"},
        "Taints": [{"Key": "gpu", "Value": "true", "Effect": "NO_SCHEDULE"}],
        "UpdateConfig": {"MaxUnavailable": 2},
    }[other]
    nodes = group.nodes
    status = group.update(ReleaseVersion="1.35.0-20261115", **{other: value})
    assert status == "UPDATE_ROLLBACK_COMPLETE"
    reason = group.stacks.reasons("nodes", "UPDATE_FAILED")["Group"]
    assert "Version and ReleaseVersion updates cannot be combined with other updates" in reason
    assert group.told["releaseVersion"] == "1.35.0-20261101"
    assert group.nodes == nodes


def test_a_changed_launch_template_is_a_new_version_of_it(group):
    """Its version reaches the node group, whose nodes are replaced."""
    nodes, wanted = group.nodes, template()
    wanted["Template"]["Properties"]["LaunchTemplateData"]["BlockDeviceMappings"][0]["Ebs"][
        "VolumeSize"
    ] = 200
    (change,) = (
        each
        for each in group.stacks.changes("nodes", wanted)
        if each["LogicalResourceId"] == "Group"
    )
    assert [each["Target"]["Name"] for each in change["Details"]] == ["LaunchTemplate"]
    assert group.stacks.update("nodes", wanted) == "UPDATE_COMPLETE"
    assert group.told["launchTemplate"]["version"] == "2"
    assert not set(nodes) & set(group.nodes)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"desiredSize": 11}, "desired capacity 11 can't be greater than max size 10"),
        ({"minSize": 3}, "Minimum capacity 3 can't be greater than desired size 2"),
    ],
)
def test_the_wanted_size_stays_within_its_bounds(group, sizes, message):
    """Whoever asks for it."""
    with pytest.raises(ClientError, match=message):
        group.eks.update_nodegroup_config(
            clusterName="nodes", nodegroupName="workers", scalingConfig=sizes
        )
    assert len(group.nodes) == 2
