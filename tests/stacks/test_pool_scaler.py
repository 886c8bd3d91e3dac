"""What the pod that sizes pools may do in AWS: the sizes of those pools, and nothing else."""

import json
from fnmatch import fnmatchcase

import pytest
from cfnlint import ManualArgs, api

from tests.stacks.synthesis import cluster_file, synthesise
from tests.stacks.test_cfn_lint import ACCEPTED

_WRITING = ("eks:UpdateNodegroupConfig", "autoscaling:TerminateInstanceInAutoScalingGroup")
_READING = (
    *("eks:DescribeNodegroup", "autoscaling:DescribeAutoScalingGroups"),
    "autoscaling:DescribeScalingActivities",
)
_NEVER = (
    *("eks:UpdateNodegroupVersion", "eks:DeleteNodegroup", "eks:CreateNodegroup"),
    *("autoscaling:SetDesiredCapacity", "autoscaling:UpdateAutoScalingGroup"),
    *("autoscaling:DeleteAutoScalingGroup", "ec2:TerminateInstances", "ec2:RunInstances"),
    *("iam:PassRole", "s3:GetObject", "eks:DescribeCluster"),
)
_PLACE = "us-east-2:111122223333"


@pytest.fixture(scope="module")
def template(sources, tmp_path_factory):
    """Return the stack of a cluster with a pool that jobs scale, and one that people do."""
    cluster = cluster_file()
    cluster["gpu_pools"].append(dict(cluster["gpu_pools"][0], name="p4d-2", scale="queue"))
    cluster["platform"] = {"kueue": True}
    return synthesise(cluster, sources, tmp_path_factory.mktemp("scaler")).template("Cluster")


def _text(value):
    """Fill in what CloudFormation would."""
    if isinstance(value, str):
        return value
    if "Ref" in value:
        return {"AWS::Partition": "aws", "AWS::AccountId": "111122223333"}[value["Ref"]]
    return "".join(map(_text, value["Fn::Join"][1]))


def _group(pool, cluster="techpulse", service="eks"):
    """Name a node group, or its scaling group, as AWS does."""
    if service == "eks":
        return f"arn:aws:eks:{_PLACE}:nodegroup/{cluster}/{pool}/0123"
    return f"arn:aws:autoscaling:{_PLACE}:autoScalingGroup:1:autoScalingGroupName/eks-{pool}-0123"


def _allows(template, action, pool, cluster="techpulse"):
    """Evaluate the role's policy as IAM does, for the groups of a pool."""
    role = template.of_type("AWS::IAM::Role")["PoolScalerRole"]["Properties"]
    resource = _group(pool, cluster, action.partition(":")[0])
    tags = {"eks:cluster-name": cluster, "eks:nodegroup-name": pool}
    for each in (e for p in role["Policies"] for e in p["PolicyDocument"]["Statement"]):
        assert each["Effect"] == "Allow"
        tests = each.get("Condition", {})
        assert tests.keys() <= {"StringEquals"}
        if (
            action in each["Action"]
            and any(fnmatchcase(resource, _text(one)) for one in each["Resource"])
            and all(
                tags[key.removeprefix("aws:ResourceTag/")] in wanted
                for key, wanted in tests.get("StringEquals", {}).items()
            )
        ):
            return True
    return False


def test_it_sizes_the_pools_that_jobs_scale_and_no_other(template):
    """By the tags and names that EKS gives; of others, and of other clusters, it only reads."""
    assert all(_allows(template, each, "p4d-2") for each in (*_WRITING, *_READING))
    for pool, cluster in (("p4d", "techpulse"), ("p4d-2", "theirs"), ("p4d-22", "techpulse")):
        assert not any(_allows(template, each, pool, cluster) for each in _WRITING)
    assert not any(_allows(template, each, "p4d-2") for each in _NEVER)


def test_nobody_else_takes_the_role(template):
    """It is one pod's, by the tags that Pod Identity puts on the session."""
    role = template.of_type("AWS::IAM::Role")["PoolScalerRole"]["Properties"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-name": "techpulse",
        "aws:RequestTag/kubernetes-namespace": "megatron-system",
        "aws:RequestTag/kubernetes-service-account": "pool-scaler",
    }
    found = template.of_type("AWS::EKS::PodIdentityAssociation")["PoolScalerRoleAssociation"]
    assert found["Properties"]["ServiceAccount"] == "pool-scaler"


def test_the_template_is_without_finding(template):
    """As for the default cluster."""
    config = ManualArgs(ignore_checks=ACCEPTED, regions=["us-east-2"])
    assert [str(each) for each in api.lint(json.dumps(template.body), config=config)] == []
