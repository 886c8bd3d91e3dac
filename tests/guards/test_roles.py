"""Roles of nodes, pods, builds and logs."""

import pytest

from tests.guards.slips import ABSENT, in_template

TRUST = "AssumeRolePolicyDocument Statement 0"
TAGS = f"{TRUST} Condition StringEquals"
RIGHTS = "Policies 0 PolicyDocument Statement"
JOBS, NODES, CNI = "IAM::Role JobRole", "IAM::Role NodeRole", "IAM::Role Addonsvpccni"
BUILDS, FLOW_LOGS = "IAM::Role MegatronRole", "IAM::Role FlowLogRole"
WRITING = {"Effect": "Allow", "Action": ["s3:PutObject"], "Resource": ["arn:aws:s3:::own/runs/*"]}
OTHER_BUCKET = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::a/b/*"]}


@pytest.mark.parametrize(
    ("role", "path", "value", "code"),
    [
        (NODES, f"{TRUST} Principal Service", "eks.amazonaws.com", "ROLE_TRUST"),
        (CNI, f"{TRUST} Action", ["sts:AssumeRole"], "ROLE_TRUST"),
        (JOBS, f"{TRUST} Principal Service", "ec2.amazonaws.com", "ROLE_TRUST"),
        (JOBS, f"{TRUST} Principal", {"AWS": "*"}, "ROLE_TRUST"),
        (JOBS, f"{TRUST} Effect", "Deny", "ROLE_TRUST"),
        (JOBS, f"{TAGS} aws:RequestTag/kubernetes-namespace", "default", "ROLE_TRUST"),
        (JOBS, f"{TAGS} aws:RequestTag/eks-cluster-name", ABSENT, "ROLE_TRUST"),
        (FLOW_LOGS, f"{TRUST} Condition", ABSENT, "ROLE_TRUST"),
        (NODES, "ManagedPolicyArns 1", ABSENT, "NODE_ROLE"),
        (NODES, "ManagedPolicyArns 0", "arn:aws:iam::aws:policy/AmazonEKSWorkrNode", "NODE_ROLE"),
        (CNI, "ManagedPolicyArns", [], "NODE_ROLE"),
        (NODES, "ManagedPolicyArns 2", "arn:aws:iam::aws:policy/AdministratorAccess", "POD_ROLE"),
        (JOBS, f"{RIGHTS} 0 Action", "s3:*", "POD_ROLE"),
        (JOBS, f"{RIGHTS} 2", {"Effect": "Allow", "Action": "*", "Resource": "*"}, "POD_ROLE"),
        (JOBS, f"{RIGHTS} 0 Resource 0", {"Fn::GetAtt": ["Bucket", "Arn"]}, "POLICY"),
        (JOBS, f"{RIGHTS} 1", ABSENT, "POLICY"),
        (JOBS, f"{RIGHTS} 1 Condition StringLike s3:prefix", ["dta/*"], "POLICY"),
        (JOBS, f"{RIGHTS} 1 Condition StringLike s3:prefix", ["data/own/*"], "POLICY"),
        (BUILDS, f"{RIGHTS} 0 Resource", ["arn:aws:s3:::other/source.zip"], "POLICY"),
        (JOBS, f"{RIGHTS} 2", ABSENT, "POLICY"),
        (JOBS, f"{RIGHTS} 2 Resource", ["arn:aws:kms:us-east-2:111122223333:key/a"], "POLICY"),
        (JOBS, "Policies", ABSENT, "POLICY"),
        (JOBS, RIGHTS, lambda old: [*old, WRITING], "POLICY"),
        (JOBS, RIGHTS, lambda old: [*old, OTHER_BUCKET], "POLICY"),
        (BUILDS, f"{RIGHTS} 2 Action", ["ecr:BatchGetImage"], "POLICY"),
        (FLOW_LOGS, f"{RIGHTS} 0 Effect", "Deny", "POLICY"),
    ],
)
def test_mistakes(role, path, value, code):
    """A role that gets, gives or lacks rights by mistake is found."""
    if path == "ManagedPolicyArns 2":
        path, value = "ManagedPolicyArns", lambda old, added=value: [*old, added]
    assert code in in_template(role, path, value)


@pytest.mark.parametrize(
    ("role", "path", "added"),
    [
        (NODES, "ManagedPolicyArns", "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"),
        (
            JOBS,
            RIGHTS,
            {"Effect": "Allow", "Action": "cloudwatch:PutMetricData", "Resource": "*"},
        ),
    ],
)
def test_more_rights(role, path, added):
    """Somebody may add rights of their own."""
    assert in_template(role, path, lambda old: [*old, added]) == set()
