"""Launch templates and node groups."""

import pytest

from tests.guards.slips import ABSENT, in_template

_GPU, _SYSTEM = "EKS::Nodegroup Pool", "EKS::Nodegroup System"
_TEMPLATE, _OTHER = "EC2::LaunchTemplate Pool", "EC2::LaunchTemplate System"
_PUBLIC = {"PUBLIC_ADDRESS"}
_DATA, _DISK = "LaunchTemplateData", "LaunchTemplateData BlockDeviceMappings"
_TEXT = f"{_DATA} UserData Fn::Base64"
_MANAGED, _AMI, _SIZE = {"MANAGED_NODES"}, {"AMI_TYPE"}, {"NODE_GROUP_SIZE"}
_USER_DATA, _PODS, _ROOT = {"USER_DATA"}, {"MAX_PODS"}, {"ROOT_VOLUME"}
_TAINT = {"Key": "nvidia.com/gpu", "Value": "true", "Effect": "NO_SCHEDULE"}
_SYSTEM_TEMPLATE = {
    "Id": {"Ref": "SystemLaunchTemplate"},
    "Version": {"Fn::GetAtt": ["SystemLaunchTemplate", "LatestVersionNumber"]},
}


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        ('"kind"', '"metadata": {"name": "ours"}, "kind"', set()),
        ("multipart/mixed", "text/plain", _USER_DATA),
        ("--megatron-eks\n", "--megatron\n", _USER_DATA),
        ("application/node.eks.aws", "application/node.eks", _USER_DATA),
        ("v1alpha1", "v1", _USER_DATA),
        ("localStorage", "localstorage", _USER_DATA),
        ("RAID0", "RAID5", _USER_DATA),
        ("250", "251", _PODS),
        ("{\n", "", {*_USER_DATA, *_PODS}),
    ],
)
def test_user_data(old, new, codes):
    """User data is MIME text with a NodeConfig that nodeadm reads."""
    assert in_template(_TEMPLATE, _TEXT, lambda text: text.replace(old, new)) == codes


@pytest.mark.parametrize(
    ("resource", "path", "value", "codes"),
    [
        # A group follows its launch template, and boots the AMI of its processor and version.
        (_TEMPLATE, f"{_DATA} MetadataOptions HttpTokens", ABSENT, {"NODE_METADATA"}),
        (_TEMPLATE, f"{_DATA} MetadataOptions HttpPutResponseHopLimit", 2, {"NODE_METADATA"}),
        (_TEMPLATE, f"{_DATA} MetadataOptions HttpEndpoint", "disabled", {"NODE_METADATA"}),
        (_GPU, "LaunchTemplate", {"Id": "lt-0123456789abcdef0", "Version": "3"}, set()),
        (_GPU, "LaunchTemplate", ABSENT, _MANAGED),
        (_GPU, "LaunchTemplate Id", ABSENT, _MANAGED),
        (_GPU, "LaunchTemplate Version", "$Latest", _MANAGED),
        (_SYSTEM, "LaunchTemplate Version Fn::GetAtt 1", "DefaultVersionNumber", _MANAGED),
        (_GPU, "LaunchTemplate", _SYSTEM_TEMPLATE, _MANAGED),
        (_GPU, "DiskSize", 100, _MANAGED),
        (_GPU, "Version", "1.99", _MANAGED),
        (_TEMPLATE, f"{_DATA} NetworkInterfaces 0 SubnetId", "subnet-0a1b2c3d", _MANAGED),
        (_TEMPLATE, f"{_DATA} InstanceType", ABSENT, {"INSTANCE_TYPE_NAME"}),
        (_TEMPLATE, f"{_DATA} InstanceType", "p4d.48xlarge", {"INSTANCE_TYPE_NAME"}),
        (_OTHER, f"{_DATA} InstanceType", "m6a.large", set()),
        (_SYSTEM, "AmiType", "AL2023_ARM_64_STANDARD", _AMI),
        (_GPU, "AmiType", "AL2023_x86_64_STANDARD", _AMI),
        (_GPU, "AmiType", ABSENT, _AMI),
        (_TEMPLATE, f"{_DATA} ImageId", "ami-0a1b2c3d", _AMI),
        (_GPU, "ReleaseVersion", "1.35.1-20260930", _MANAGED),
        (_TEMPLATE, f"{_DATA} NetworkInterfaces 0 AssociatePublicIpAddress", True, _PUBLIC),
        # Sizes are constant, a pool has one subnet, its taint and label, and nodes are replaced.
        (_SYSTEM, "ScalingConfig", {"MinSize": 3, "DesiredSize": 3, "MaxSize": 3}, set()),
        (_SYSTEM, "ScalingConfig", {"MinSize": 1, "DesiredSize": 1, "MaxSize": 1}, _SIZE),
        (_SYSTEM, "ScalingConfig MinSize", 3, _SIZE),
        (_GPU, "ScalingConfig DesiredSize", 2, _SIZE),
        (_GPU, "ScalingConfig", ABSENT, _SIZE),
        (_GPU, "NodeRepairConfig Enabled", False, _MANAGED),
        (_SYSTEM, "Subnets", lambda old: old[:2], set()),
        (_GPU, "Subnets", lambda old: [*old, "subnet-0123456789abcdef0"], {"NODE_GROUP_SUBNETS"}),
        (_GPU, "Labels team", "nlp", set()),
        (_GPU, "Labels megatron-eks/pool", "p5", _MANAGED),
        (_GPU, "NodegroupName", ABSENT, _MANAGED),
        (_GPU, "Taints", lambda _: [_TAINT | {"Effect": "NO_EXECUTE"}], {"SHARED_GPU_NODES"}),
        (_GPU, "Taints", ABSENT, {"SHARED_GPU_NODES"}),
        (_GPU, "Taints 0 Key", "nvidia.com/gpus", {"SHARED_GPU_NODES"}),
        (_GPU, "Taints 0 Effect", "PREFER_NO_SCHEDULE", {"SHARED_GPU_NODES"}),
        (_GPU, "Taints", [_TAINT, {"Key": "team", "Value": "nlp"}], {"SHARED_GPU_NODES"}),
        (_SYSTEM, "Taints", lambda _: [_TAINT], {"START_ORDER"}),
        # NVMe disks are used, and the root volume is large, encrypted, and gone with its node.
        (_TEMPLATE, f"{_DATA} UserData", ABSENT, {*_USER_DATA, *_PODS}),
        (_TEMPLATE, f"{_DATA} UserData", "#!/bin/bash", _USER_DATA),
        (_TEMPLATE, f"{_DATA} UserData", {"Ref": "Text"}, set()),
        (_TEMPLATE, f"{_DISK} 0 Ebs VolumeSize", 1000, set()),
        (_TEMPLATE, f"{_DISK} 0 Ebs VolumeSize", 20, _ROOT),
        (_TEMPLATE, f"{_DISK} 0 DeviceName", "/dev/sda1", _ROOT),
        (_TEMPLATE, _DISK, lambda old: [*old, old[0] | {"DeviceName": "/dev/sdb"}], set()),
        (_TEMPLATE, f"{_DISK} 0 Ebs Encrypted", False, _ROOT),
        (_TEMPLATE, f"{_DISK} 0 Ebs VolumeType", "st1", _ROOT),
        (_TEMPLATE, f"{_DISK} 0 Ebs DeleteOnTermination", False, _ROOT),
        (_TEMPLATE, f"{_DISK} 0 Ebs KmsKeyId", "alias/aws/ebs", set()),
        (_TEMPLATE, f"{_DISK} 0 Ebs KmsKeyId", {"Ref": "Key"}, {"KEY_POLICY"}),
    ],
)
def test_node_groups_and_launch_templates(resource, path, value, codes):
    """What nodes start from, how many there are, and what they have."""
    assert in_template(resource, path, value) == codes
