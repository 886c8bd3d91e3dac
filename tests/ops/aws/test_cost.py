"""`meks cost` where only EC2 answers, on a local AWS; and how a log tells the pace."""

import os

import pytest

from megatron_eks.ops.cluster import billing
from tests import command, schemas
from tests.ops.aws.fakes import CLUSTER, project_in

NAME = "priced"


@pytest.fixture(scope="module")
def running(server):
    """Run two GPU nodes of the cluster, one of another, and one that has ended."""
    ec2 = server.client("ec2", "us-east-2")
    (image, *_) = ec2.describe_images()["Images"]

    def launch(cluster, group):
        tags = [
            {"Key": "eks:cluster-name", "Value": cluster},
            {"Key": "eks:nodegroup-name", "Value": group},
        ]
        found = ec2.run_instances(
            ImageId=image["ImageId"],
            InstanceType="p4d.24xlarge",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        return found["Instances"][0]["InstanceId"]

    made = [launch(NAME, "p4d"), launch(NAME, "p4d")]
    others = [launch("other", "p4d"), launch(NAME, "p4d")]
    ec2.terminate_instances(InstanceIds=others[1:])
    yield made
    ec2.terminate_instances(InstanceIds=[*made, others[0]])


def test_instances_are_those_of_the_cluster_that_are_billed(server, running):
    """By the tags that EKS gives them."""
    found = billing.instances(NAME, server.client("ec2", "us-east-2"))
    assert sorted(each.name for each in found) == sorted(running)
    assert {(each.pool, each.capacity) for each in found} == {("p4d", "on_demand")}


@pytest.fixture
def cost(server, tmp_path):
    """Return a function that runs the command without a way to the API server."""
    file = project_in(tmp_path, CLUSTER.replace("name: techpulse", f"name: {NAME}"))

    def call(*arguments, **variables):
        environment = {**os.environ, **server.environment("us-east-2"), "KUBECONFIG": "/dev/null"}
        words = ("cost", *arguments, "--cluster", file)
        return command.meks(*words, env={**environment, **variables})

    return call


@pytest.mark.usefixtures("running")
def test_what_ec2_bills_is_told_without_the_api_server(cost):
    """Which jobs run is not known then, and so nothing is called idle."""
    done = cost("-o", "json")
    assert done.returncode == 0, done.stderr
    shown = schemas.read("cost", done.stdout)
    assert shown["jobs"] is None
    (pool,) = shown["nodes"]
    assert (pool["pool"], pool["count"]) == ("p4d", 2)
    assert shown["findings"] == []
    assert shown["notes"][0].startswith("no current context in /dev/null [MEKS-0722] - write one")


def test_one_job_needs_the_api_server(cost):
    """Its ranks and their time are nowhere else."""
    done = cost("megatron-cpt-techpulse")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: MEKS-0722 no current context")


def test_with_neither_there_is_nothing_to_tell(cost):
    """The first way is named."""
    done = cost(AWS_ACCESS_KEY_ID="AKIA0000000000000000")
    assert (done.returncode, done.stdout) == (2, "")
    assert "MEKS-0722" in done.stderr
