"""What the pod that sizes pools may do in AWS: the sizes of those pools, and nothing else."""

import json

import pytest

from tests.stacks.synthesis import FILLED, allows, cluster_file, linted, synthesise

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
_PLACE = f"us-east-2:{FILLED['AWS::AccountId']}"


@pytest.fixture(scope="module")
def template(sources, tmp_path_factory):
    """Return the stack of a cluster with a pool that jobs scale, and one that people do."""
    cluster = cluster_file()
    cluster["gpu_pools"].append(dict(cluster["gpu_pools"][0], name="p4d-2", scale="queue"))
    cluster["platform"] = {"kueue": True}
    return synthesise(cluster, sources, tmp_path_factory.mktemp("scaler")).template("Cluster")


def _group(pool, cluster="techpulse", service="eks"):
    """Name a node group, or its scaling group, as AWS does."""
    if service == "eks":
        return f"arn:aws:eks:{_PLACE}:nodegroup/{cluster}/{pool}/0123"
    return f"arn:aws:autoscaling:{_PLACE}:autoScalingGroup:1:autoScalingGroupName/eks-{pool}-0123"


def _allows(template, action, pool, cluster="techpulse"):
    """Tell what the role may do with the groups of a pool."""
    role = template.of_type("AWS::IAM::Role")["PoolScalerRole"]["Properties"]
    tags = {"eks:cluster-name": cluster, "eks:nodegroup-name": pool}
    context = {f"aws:ResourceTag/{name}": value for name, value in tags.items()}
    return allows(role, action, _group(pool, cluster, action.partition(":")[0]), context)


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
    assert linted(json.dumps(template.body)) == []
