"""The default cluster by the real `cdk`, from an empty account to an empty account."""

import json
from pathlib import Path

import pytest
import yaml

from tests.annex.aws.commands import ROOT, run
from tests.annex.aws.running import fail_next

pytestmark = pytest.mark.tools

REGION = "us-east-2"
STACKS = ["techpulse-Network", "techpulse-Storage", "techpulse-Images", "techpulse-Cluster"]


class World:
    """One account, one cluster file, and the commands for them."""

    def __init__(self, aws, home: Path):
        self.aws, self.home = aws, home
        self.file = home / "cluster.yaml"
        self.cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
        admin = f"arn:aws:iam::{aws.account}:role/Admin"
        self.cluster["access"] |= {"admin_role_arns": [admin], "public_cidrs": ["8.8.8.0/24"]}
        self.cluster["access"]["deletion_protection"] = False
        trainer = {"name": "my-trainer", "context": "trainer", "base": "fsdp", "test": "true"}
        self.cluster["images"] = {"own": [trainer]}
        (home / "trainer").mkdir()
        (home / "trainer" / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM $BASE_IMAGE\n")
        self.write()

    def write(self) -> None:
        """Write the cluster file as it is meant to be now."""
        self.file.write_text(yaml.safe_dump(self.cluster))

    def cdk(self, *words: str):
        """Run `cdk` on the cluster file."""
        out = str(self.home / "cdk.out")
        return run(
            self.aws,
            REGION,
            self.home,
            *("cdk", *words, "--output", out, "-c", f"config={self.file}"),
        )

    def meks(self, *words: str):
        """Run `meks` on the cluster file."""
        command = ("python", "-m", "megatron_eks", *words, f"--cluster={self.file}")
        found = run(self.aws, REGION, self.home, *command)
        return found.returncode, found.stdout + found.stderr

    def client(self, service: str):
        """Return a boto3 client."""
        return self.aws.client(service, REGION)

    def pool(self):
        """Return the node group of the GPU pool."""
        found = self.client("eks").describe_nodegroup(clusterName="techpulse", nodegroupName="p4d")
        return found["nodegroup"]


@pytest.fixture(scope="module")
def world(aws, tmp_path_factory):
    """Return an account with the default cluster in it."""
    world = World(aws, tmp_path_factory.mktemp("world"))
    done = world.cdk("bootstrap", f"aws://{aws.account}/{REGION}")
    assert done.returncode == 0, done.stderr
    outputs = world.home / "outputs.json"
    done = world.cdk("deploy", "--all", "--require-approval=never", "--outputs-file", str(outputs))
    assert done.returncode == 0, done.stderr
    return world


def test_a_deployment_writes_the_names_that_aws_chose(world):
    """What the charts need stands in outputs.json, as it is in the account."""
    outputs = json.loads((world.home / "outputs.json").read_text())
    storage = outputs["techpulse-Storage"]
    (system,) = world.client("fsx").describe_file_systems()["FileSystems"]
    assert storage["LustreId"] == system["FileSystemId"]
    assert storage["LustreMountName"] == system["LustreConfiguration"]["MountName"]
    buckets = [each["Name"] for each in world.client("s3").list_buckets()["Buckets"]]
    assert storage["BucketName"] in buckets
    repositories = world.client("ecr").describe_repositories()["repositories"]
    uris = [each["repositoryUri"] for each in repositories]
    assert outputs["techpulse-Images"]["MegatronImage"].rsplit(":", 1)[0] in uris


def test_the_services_know_what_was_deployed(world):
    """Cluster, nodes, add-ons and access are there for every client of their services."""
    eks = world.client("eks")
    cluster = eks.describe_cluster(name="techpulse")["cluster"]
    assert (cluster["version"], cluster["deletionProtection"]) == ("1.36", False)
    system, pool = sorted(eks.list_nodegroups(clusterName="techpulse")["nodegroups"], key=len)[::-1]
    assert (pool, system.startswith("techpulse-Cluster-SystemNodegroup-")) == ("p4d", True)
    assert eks.describe_addon(clusterName="techpulse", addonName="vpc-cni")["addon"]
    nodes = world.client("ec2").describe_instances(InstanceIds=_nodes(world, system))
    types = [each["InstanceType"] for one in nodes["Reservations"] for each in one["Instances"]]
    assert types == ["c5.2xlarge"] * 2


def test_codebuild_finds_its_source(world):
    """The asset that a project names was published, and is the images' build context."""
    (project,) = world.client("codebuild").batch_get_projects(names=["techpulse-megatron"])[
        "projects"
    ]
    bucket, key = project["source"]["location"].split("/", 1)
    head = world.client("s3").head_object(Bucket=bucket, Key=key)
    assert head["ContentLength"] > 10_000


def test_a_build_pushes_an_image_and_tells_its_digest(world):
    """Under the deployed tag, with the digest in the log; a failure on demand fails it."""
    codebuild = world.client("codebuild")
    (build,) = _builds(codebuild, codebuild.start_build(projectName="techpulse-megatron"))
    assert build["buildStatus"] == "SUCCEEDED"
    place = {
        "logGroupName": build["logs"]["groupName"],
        "logStreamName": build["logs"]["streamName"],
    }
    events = world.client("logs").get_log_events(**place)["events"]
    outputs = json.loads((world.home / "outputs.json").read_text())["techpulse-Images"]
    name, tag = outputs["MegatronImage"].partition("/")[2].split(":")
    found = world.client("ecr").describe_images(repositoryName=name, imageIds=[{"imageTag": tag}])
    digest = found["imageDetails"][0]["imageDigest"]
    assert events[-1]["message"] == f"digest: {digest}"
    fail_next(world.aws, "techpulse-fsdp", "no space left on device", action="BUILD")
    (build,) = _builds(codebuild, codebuild.start_build(projectName="techpulse-fsdp"))
    assert build["buildStatus"] == "FAILED"
    assert "no space left" in build["phases"][-1]["contexts"][0]["message"]


def test_an_image_of_the_user_s_is_built_after_its_base(world):
    """From the recorded digest of ours; both are written down, and nothing is built twice."""
    code, said = world.meks("build", "my-trainer")
    assert code == 3, said
    code, said = world.meks("build", "my-trainer", "fsdp")
    assert code == 0, said
    written = json.loads((world.home / "outputs.json").read_text())["techpulse-Images"]
    ours, own = (written[f"{name}Image"] for name in ("Fsdp", "OwnMyTrainer"))
    assert own.partition("@")[0].endswith("/my-trainer")
    (build,) = _latest(world.client("codebuild"), "techpulse-my-trainer")
    given = {each["name"]: each["value"] for each in build["environment"]["environmentVariables"]}
    assert (given["BASE_IMAGE"], given["BASE"]) == (ours, "fsdp")
    code, said = world.meks("build", "my-trainer")
    assert "my-trainer: built already" in said
    assert world.meks("build", "trainer")[0] == 2


def test_the_same_again_changes_nothing(world):
    """A second deployment finds no changes in any stack."""
    done = world.cdk("deploy", "--all", "--require-approval=never")
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("(no changes)") == len(STACKS)


def test_labels_change_in_place_and_sizes_stay(world):
    """After scaling, a changed ceiling and label keep the nodes: their sizes are never sent."""
    world.client("eks").update_nodegroup_config(
        clusterName="techpulse", nodegroupName="p4d", scalingConfig={"desiredSize": 2}
    )
    before = _nodes(world, "p4d")
    world.cluster["gpu_pools"][0] |= {"max_nodes": 4, "labels": {"team": "nlp"}}
    world.write()
    diff = world.cdk("diff")
    told = (diff.stdout + diff.stderr).splitlines()
    (changed,) = (line for line in told if line.startswith("[~]"))
    assert changed.startswith("[~] AWS::EKS::Nodegroup")
    assert "replace" not in changed
    assert any("team" in line for line in told)
    done = world.cdk("deploy", "--all", "--require-approval=never")
    assert done.returncode == 0, done.stderr
    assert world.pool()["scalingConfig"]["desiredSize"] == 2
    assert world.pool()["labels"]["team"] == "nlp"
    assert (len(before), _nodes(world, "p4d")) == (2, before)


def test_a_failure_rolls_back_and_says_why(world):
    """A service's error reaches the terminal, and the stack is what it was."""
    fail_next(
        world.aws, "AWS::EKS::Nodegroup", "Internal Failure: we are not well today", action="UPDATE"
    )
    world.cluster["gpu_pools"][0]["labels"] = {"team": "vision"}
    world.write()
    done = world.cdk("deploy", "--all", "--require-approval=never")
    assert done.returncode == 1
    assert "we are not well today" in done.stdout + done.stderr
    assert world.pool()["labels"]["team"] == "nlp"
    stack = world.client("cloudformation").describe_stacks(StackName="techpulse-Cluster")
    assert stack["Stacks"][0]["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"


def test_the_end_leaves_what_is_to_be_kept(world):
    """The file system is kept, and stands in the way of its network, as in AWS."""
    done = world.cdk("destroy", "--all", "--force")
    assert done.returncode == 1
    assert "has dependencies and cannot be deleted" in done.stdout + done.stderr
    assert "techpulse" not in world.client("eks").list_clusters()["clusters"]
    assert (
        world.client("ec2").describe_instances(
            Filters=[{"Name": "instance-state-name", "Values": ["running"]}]
        )["Reservations"]
        == []
    )
    stacks = world.client("cloudformation").describe_stacks()["Stacks"]
    ended = {each["StackName"]: each["StackStatus"] for each in stacks}
    assert ended == {"CDKToolkit": "CREATE_COMPLETE", "techpulse-Network": "DELETE_FAILED"}
    (system,) = world.client("fsx").describe_file_systems()["FileSystems"]
    subnets = world.client("ec2").describe_subnets(SubnetIds=system["SubnetIds"])["Subnets"]
    assert [each["AvailabilityZone"] for each in subnets] == ["us-east-2b"]


def _builds(codebuild, started):
    return codebuild.batch_get_builds(ids=[started["build"]["id"]])["builds"]


def _latest(codebuild, project):
    ids = codebuild.list_builds_for_project(projectName=project)["ids"][:1]
    return codebuild.batch_get_builds(ids=ids)["builds"]


def _nodes(world, group: str) -> list[str]:
    found = world.client("ec2").describe_instances(
        Filters=[
            {"Name": "tag:eks:nodegroup-name", "Values": [group]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
    )
    return sorted(each["InstanceId"] for one in found["Reservations"] for each in one["Instances"])
