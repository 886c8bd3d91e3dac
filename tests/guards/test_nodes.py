"""Launch templates and node groups."""

import pytest

from tests.guards.slips import ABSENT, in_template

_GPU, _SYSTEM = "EKS::Nodegroup Pool", "EKS::Nodegroup System"
_TEMPLATE = "EC2::LaunchTemplate Pool"
_MANAGED, _AMI, _SIZE = {"MANAGED_NODES"}, {"AMI_TYPE"}, {"NODE_GROUP_SIZE"}
_TAINT = {"Key": "nvidia.com/gpu", "Value": "true", "Effect": "NO_SCHEDULE"}
_SYSTEM_TEMPLATE = {
    "Id": {"Ref": "SystemLaunchTemplate"},
    "Version": {"Fn::GetAtt": ["SystemLaunchTemplate", "LatestVersionNumber"]},
}


def test_metadata_service():
    """Pods cannot take the node's credentials."""
    options = "LaunchTemplateData MetadataOptions"
    assert in_template("EC2::LaunchTemplate", f"{options} HttpTokens", "required") == set()
    assert in_template("EC2::LaunchTemplate", f"{options} HttpTokens", ABSENT) == {"NODE_METADATA"}
    for name, value in (("HttpPutResponseHopLimit", 2), ("HttpEndpoint", "disabled")):
        codes = in_template("EC2::LaunchTemplate", f"{options} {name}", value)
        assert codes == {"NODE_METADATA"}


@pytest.mark.parametrize(
    ("resource", "path", "value", "codes"),
    [
        (_GPU, "LaunchTemplate", {"Id": "lt-0123456789abcdef0", "Version": "3"}, set()),
        (_GPU, "LaunchTemplate", ABSENT, _MANAGED),
        (_GPU, "LaunchTemplate Id", ABSENT, _MANAGED),
        (_GPU, "LaunchTemplate Version", ABSENT, _MANAGED),
        (_GPU, "LaunchTemplate Version", "$Latest", _MANAGED),
        (_SYSTEM, "LaunchTemplate Version Fn::GetAtt 1", "DefaultVersionNumber", _MANAGED),
        (_GPU, "LaunchTemplate", _SYSTEM_TEMPLATE, {*_MANAGED, *_AMI, "START_ORDER", *_SIZE}),
        (_GPU, "DiskSize", 100, _MANAGED),
        (_GPU, "InstanceTypes", ["p4d.24xlarge"], _MANAGED),
        (_TEMPLATE, "LaunchTemplateData IamInstanceProfile", {"Name": "nodes"}, _MANAGED),
    ],
)
def test_launch_template_of_the_group(resource, path, value, codes):
    """A node group follows its own launch template, and says nothing that it says."""
    assert in_template(resource, path, value) == codes


@pytest.mark.parametrize(
    ("resource", "path", "value", "codes"),
    [
        (_SYSTEM, "AmiType", "BOTTLEROCKET_x86_64", set()),
        (_SYSTEM, "AmiType", "AL2023_x86_64_NVIDIA", _AMI),
        (_SYSTEM, "AmiType", "AL2023_ARM_64_STANDARD", _AMI),
        (_GPU, "AmiType", "AL2023_x86_64_STANDARD", _AMI),
        (_GPU, "AmiType", ABSENT, _AMI),
        (_GPU, "AmiType", "CUSTOM", _AMI),
        (_TEMPLATE, "LaunchTemplateData InstanceType", ABSENT, {"INSTANCE_TYPE_NAME"}),
        (_TEMPLATE, "LaunchTemplateData InstanceType", "p4d.48xlarge", {"INSTANCE_TYPE_NAME"}),
        (_GPU, "ReleaseVersion", "1.35.9-20261015", set()),
        (_GPU, "ReleaseVersion", "1.34.2-20260930", _AMI | {"VERSION_SKEW"}),
        (_GPU, "ReleaseVersion", ABSENT, _AMI),
        (_GPU, "Version", "1.36", {"VERSION_SKEW"}),
        (_GPU, "Version", ABSENT, {"VERSION_SKEW"}),
        (_GPU, "NodeRole Fn::GetAtt 0", "ClusterRole", {"NODE_ROLE", "ROLE_TRUST"}),
    ],
)
def test_what_nodes_boot(resource, path, value, codes):
    """Type, AMI, release, version and role of the nodes fit each other and the cluster."""
    assert in_template(resource, path, value) == codes


@pytest.mark.parametrize(
    ("resource", "path", "value", "codes"),
    [
        (_SYSTEM, "ScalingConfig", {"MinSize": 3, "DesiredSize": 3, "MaxSize": 3}, set()),
        (_SYSTEM, "ScalingConfig", {"MinSize": 1, "DesiredSize": 1, "MaxSize": 1}, _SIZE),
        (_SYSTEM, "ScalingConfig MinSize", 3, _SIZE),
        (_GPU, "ScalingConfig DesiredSize", 2, _SIZE),
        (_GPU, "ScalingConfig MaxSize", 0, _SIZE),
        (_GPU, "ScalingConfig", ABSENT, _SIZE),
        (_SYSTEM, "Subnets", lambda old: old[:2], set()),
        (_GPU, "Subnets", lambda old: [*old, "subnet-0123456789abcdef0"], {"NODE_GROUP_SUBNETS"}),
        (_GPU, "Labels team", "nlp", set()),
        (_GPU, "Labels megatron-eks/pool", ABSENT, _MANAGED),
        (_GPU, "Labels megatron-eks/pool", "p5", _MANAGED),
        (_GPU, "NodegroupName", ABSENT, _MANAGED),
        (_SYSTEM, "NodegroupName", "p4d", {"TWICE"}),
        (_GPU, "NodeRepairConfig Enabled", False, _MANAGED),
        (_GPU, "NodeRepairConfig MaxUnhealthyNodeThresholdCount", ABSENT, _MANAGED),
        (
            _GPU,
            "UpdateConfig",
            {"MaxUnavailablePercentage": 10, "UpdateStrategy": "MINIMAL"},
            set(),
        ),
        (_GPU, "UpdateConfig UpdateStrategy", "DEFAULT", _MANAGED),
    ],
)
def test_sizes_and_updates(resource, path, value, codes):
    """Sizes are constant, a pool has one subnet and its label, and broken nodes are replaced."""
    assert in_template(resource, path, value) == codes


@pytest.mark.parametrize(
    ("resource", "value", "codes"),
    [
        (_GPU, [_TAINT | {"Effect": "NO_EXECUTE"}], set()),
        (_GPU, ABSENT, {"SHARED_GPU_NODES"}),
        (_GPU, [_TAINT | {"Key": "nvidia.com/gpus"}], {"SHARED_GPU_NODES"}),
        (_GPU, [_TAINT | {"Effect": "PREFER_NO_SCHEDULE"}], {"SHARED_GPU_NODES"}),
        (_GPU, [_TAINT, {"Key": "team", "Value": "nlp"}], {"SHARED_GPU_NODES"}),
        (_GPU, [_TAINT, _TAINT], {*_MANAGED, "TWICE"}),
        (_SYSTEM, [_TAINT], {"START_ORDER"}),
    ],
)
def test_taint(resource, value, codes):
    """GPU pools alone have a taint, the one that jobs tolerate."""
    if value is ABSENT:
        assert in_template(resource, "Taints", value) == codes
    else:
        assert in_template(resource, "Taints", lambda _: value) == codes
