"""EFA interfaces, their groups and the groups' rules."""

import pytest

from megatron_eks.guards.check import check_templates
from tests.guards.slips import ABSENT, Json, in_template

_GPU = "EC2::LaunchTemplate Pool"
_NICS = "LaunchTemplateData NetworkInterfaces"
_LAYOUT, _GROUPS, _RULES = {"EFA_INTERFACES"}, {"INTERFACES_AND_GROUPS"}, {"EFA_SELF_RULES"}


@pytest.mark.parametrize(
    ("path", "value", "codes"),
    [
        (_NICS, ABSENT, {*_LAYOUT, "CLUSTER_GROUP"}),
        (_NICS, lambda old: old[:-1], _LAYOUT),
        (_NICS, lambda old: [*old, old[-1] | {"NetworkCardIndex": 4}], _LAYOUT),
        (f"{_NICS} 0 InterfaceType", "efa-only", _LAYOUT),
        (f"{_NICS} 2 NetworkCardIndex", "one", _LAYOUT),
        (f"{_NICS} 4 DeviceIndex", 1, set()),
        (f"{_NICS} 4 DeviceIndex", 2, _LAYOUT),
        ("LaunchTemplateData InstanceType", "p5.48xlarge", {*_LAYOUT, "MAX_PODS"}),
        ("LaunchTemplateData InstanceType", "g5.xlarge", {*_LAYOUT, "MAX_PODS"}),
        (f"{_NICS} 1 DeleteOnTermination", False, _LAYOUT),
        (f"{_NICS} 3 Groups", lambda old: [*old, "sg-0123456789abcdef1"], set()),
        (f"{_NICS} 3 Groups", ["sg-0123456789abcdef0", "sg-0123456789abcdef1"], _RULES),
        (f"{_NICS} 3 Groups", ABSENT, {"CLUSTER_GROUP"}),
        (f"{_NICS} 3 Groups 0", ABSENT, {"CLUSTER_GROUP", *_RULES}),
        (f"{_NICS} 3 Groups 1", ABSENT, _RULES),
        ("LaunchTemplateData SecurityGroupIds", ["sg-0123456789abcdef1"], _GROUPS),
    ],
)
def test_interfaces(path, value, codes):
    """Every card has its interface, with the groups of the cluster and of the nodes."""
    assert in_template(_GPU, path, value) == codes


def test_a_first_card_without_efa():
    """Of other types it may have EFA and IP in one."""
    change = (_GPU, f"{_NICS} 0 InterfaceType", "efa")
    assert in_template(*change, "p6-b300") == _LAYOUT


def test_template_of_no_node_group():
    """Another machine's template, such as a bastion's, needs no group of the nodes."""
    options: Json = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    data: Json = {"LaunchTemplateData": {"MetadataOptions": options}}
    resource: Json = {"Type": "AWS::EC2::LaunchTemplate", "Properties": data}
    assert check_templates({"Bastion": {"Resources": {"Bastion": resource}}}) == []


@pytest.mark.parametrize("kind", ["EC2::SecurityGroupIngress", "EC2::SecurityGroupEgress"])
def test_self_rules(kind):
    """The group of the nodes admits all traffic from and to itself."""
    assert in_template(f"{kind} Nodes", "Description", "ours") == set()
    assert in_template(f"{kind} Nodes", "IpProtocol", "tcp") == _RULES
    assert in_template(f"{kind} Nodes", "GroupId", "sg-0123456789abcdef0") == _RULES
    assert in_template(f"{kind} Nodes", "Type", "AWS::SSM::Parameter") == _RULES
