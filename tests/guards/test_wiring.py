"""What holds templates together: imports, and things that are there once."""

import pytest

from tests.guards.slips import ABSENT, in_template

LINK, ADDON = "EC2::SubnetRouteTableAssociation Private", "EKS::Addon coredns"
ROLE = "EKS::PodIdentityAssociation"


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (LINK, "SubnetId", {"Ref": "PrivateSubnetuseast2b"}, "TWICE"),
        ("EC2::Route Private", "RouteTableId", {"Ref": "PrivateRoutesuseast2b"}, "TWICE"),
        (ADDON, "AddonName", "kube-proxy", "TWICE"),
        ("EKS::Cluster", "ResourcesVpcConfig SubnetIds", lambda ids: ids[:2] * 2, "TWICE"),
        ("IAM::Role", "AssumeRolePolicyDocument Version", ABSENT, "POLICY"),
        (ROLE, "RoleArn", {"Fn::ImportValue": "techpulse-Storage:Missing"}, "REFERENCE"),
    ],
)
def test_mistakes_in_the_wiring(resource, path, value, code):
    """Each is found under its code."""
    assert code in in_template(resource, path, value)


def test_a_stack_that_is_not_at_hand():
    """Nothing is said of what it exports."""
    other = {"Fn::ImportValue": "else-Data:Role"}
    assert "REFERENCE" not in in_template(ROLE, "RoleArn", other)
