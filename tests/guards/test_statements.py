"""Versions of policies, imports, and things that are there once."""

import pytest

from tests.guards.slips import ABSENT, in_template

ROLE = "EKS::PodIdentityAssociation"


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        ("EKS::Cluster", "ResourcesVpcConfig SubnetIds", lambda ids: ids[:2] * 2, "TWICE"),
        ("CodeBuild::Project", "Type", "AWS::CodeBuild::Fleet", "REFERENCE"),
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
