"""Versions of policies, imports, and things that are there once."""

import pytest

from tests.guards.slips import ABSENT, in_stack, in_template

ROLE = "EKS::PodIdentityAssociation"


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        ("EKS::Cluster", "ResourcesVpcConfig SubnetIds", lambda ids: ids[:2] * 2, "TWICE"),
        ("IAM::Role", "AssumeRolePolicyDocument Version", ABSENT, "POLICY"),
        (ROLE, "RoleArn", {"Fn::ImportValue": "techpulse-Storage:Missing"}, "REFERENCE"),
    ],
)
def test_mistakes_in_the_wiring(resource, path, value, code):
    """Each is found under its code."""
    assert code in in_template(resource, path, value)


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("KMS::Key", "KeyPolicy Statement 0 Principal"),
        ("S3::BucketPolicy", "PolicyDocument Statement"),
        ("ECR::Repository", "RepositoryPolicyText"),
    ],
)
def test_what_everybody_may_use(resource, path):
    """Statements for all accounts are found, but those that a condition narrows."""
    wide = {"Effect": "Allow", "Action": "*", "Resource": "*", "Principal": {"AWS": "*"}}
    narrow = wide | {"Condition": {"StringEquals": {"aws:SourceAccount": "111122223333"}}}

    def with_one(one):
        match path.rsplit(" ", 1)[-1]:
            case "Principal":
                return one["Principal"]
            case "Statement":
                return lambda old: [*old, one]
        return {"Version": "2012-10-17", "Statement": [one]}

    assert "OPEN_TO_ALL" in in_template(resource, path, with_one(wide))
    if "Principal" not in path:
        assert in_template(resource, path, with_one(narrow)) == set()


def test_a_stack_that_is_not_at_hand():
    """Nothing is said of what it exports."""
    other = {"Fn::ImportValue": "else-Data:Role"}
    assert "REFERENCE" not in in_template(ROLE, "RoleArn", other)


def test_an_output_that_meks_reads():
    """It is missed where it does not lead to its resource."""

    def renamed(bodies):
        return {name.replace("Project", "Build"): body for name, body in bodies.items()}

    assert in_stack("Images", renamed) >= {"REFERENCE"}
