"""Two clusters in one account, from two folders: nothing of one becomes the other's."""

import json

import pytest

from megatron_eks.config.errors import ConfigError
from megatron_eks.ops import checks
from megatron_eks.ops.cluster import deploy, preflight, retained
from tests.annex.aws.running import local_aws
from tests.annex.aws.stacks import Stacks
from tests.ops.aws.fakes import console, project_in, said, tools, written
from tests.ops.aws.quick_cdk import LOCAL_CLUSTER, ROLE, QuickCdk

PREFIX = "images: {prefix: b-}\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Run a local AWS in which nobody else has repositories."""
    with local_aws(tmp_path_factory.mktemp("aws")) as server:
        server.client("iam", "us-east-2").create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
        yield server


@pytest.fixture
def cluster(tmp_path, aws):
    """Return a function that writes a cluster file into its folder and opens what acts on it."""

    def opened(name, more=""):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        text = LOCAL_CLUSTER.replace("name: techpulse", f"name: {name}")
        return tools(project_in(folder, text + more), aws, console(yes=True))

    return opened


def made(of, *stacks):
    """Deploy stacks of a cluster."""
    cdk = QuickCdk(of.cluster_file, of.cluster_file.parent, of.aws)
    return deploy.run(stacks, of, cdk)


def names_of(aws):
    """Return the stacks of the account."""
    return {each["StackName"] for each in aws.client("cloudformation").describe_stacks()["Stacks"]}


def test_a_second_cluster_takes_nothing_of_the_first(cluster, aws):
    """Its repositories are named before anything is made, and never deleted for another."""
    first, second = cluster("clu-a"), cluster("clu-b")
    assert made(first, "Images") == 0
    with pytest.raises(ConfigError) as caught:
        made(second)
    assert [str(each) for each in caught.value.findings] == [
        f"error MEKS-0769 {second.cluster_file}:4 images.prefix: Repository {name} belongs to "
        "stack clu-a-Images - set images.prefix to something else in this cluster's file"
        for name in ("megatron-training", "fsdp")
    ]
    assert names_of(aws) == {"clu-a-Images"}
    assert retained.repositories(second) == []
    assert retained.repositories(first) == ["megatron-training", "fsdp"]
    results, _ = preflight.account(second)
    assert checks.report(second.project.cluster, results, "json", second.console) == 4
    (names,) = (
        each for each in json.loads(written(second.console))["checks"] if each["name"] == "names"
    )
    assert [each["code"] for each in names["findings"]] == ["MEKS-0769"] * 2
    second = cluster("clu-b", PREFIX)
    assert made(second, "Images") == 0
    assert "taken over" not in said(second.console)
    assert names_of(aws) == {"clu-a-Images", "clu-b-Images"}
    for each, images in ((first, "megatron-training"), (second, "b-megatron-training")):
        outputs = json.loads(each.cluster_file.with_name("outputs.json").read_text())
        assert list(outputs) == [f"{each.plan.name}-Images"]
        assert f"/{images}:" in outputs[f"{each.plan.name}-Images"]["MegatronImage"]


def test_what_no_living_stack_holds_is_taken_over(cluster, aws):
    """A repository outlives its stack with the images in it."""
    aws.client("ecr").create_repository(repositoryName="c-fsdp")
    third = cluster("clu-c", "images: {prefix: c-}\n")
    assert retained.repositories(third) == ["c-fsdp"]


def test_two_clusters_of_one_folder_are_refused_before_anything_is_made(cluster, aws):
    """Both would write one outputs.json."""
    before, first = names_of(aws), cluster("clu-d", "images: {prefix: d-}\n")
    other = first.cluster_file.with_name("other.yaml")
    other.write_text(LOCAL_CLUSTER)
    with pytest.raises(ConfigError, match=r"MEKS-0010 .* is the folder of cluster 'techpulse'"):
        made(first)
    assert names_of(aws) == before


def test_the_name_of_a_cluster_that_another_tool_made_is_told(cluster, aws):
    """Its EKS cluster and its logs belong to a stack that is not ours."""
    logs = {"LogGroupName": "/aws/eks/clu-e/cluster"}
    Stacks(aws.client("cloudformation")).create(
        "eksctl-clu-e-cluster", {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": logs}}
    )
    with pytest.raises(ConfigError, match=r"MEKS-0769 .*:5 name: LogGroup /aws/eks/clu-e/cluster"):
        made(cluster("clu-e", "images: {prefix: e-}\n"))
