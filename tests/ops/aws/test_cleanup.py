"""`meks cleanup` ends what costs money in order, keeps data unless named, and converges."""

import json

import pytest

from megatron_eks.ops.aws.stacks import Stacks
from megatron_eks.ops.cluster import cleanup, deploy
from megatron_eks.ops.failure import Failure
from tests.annex.aws.running import fail_next
from tests.ops.aws.fakes import FakeKubernetes, console, project_in, said, tools, written
from tests.ops.aws.quick_cdk import LOCAL_CLUSTER, QuickCdk

NAME = "gone"
PROTECTED = LOCAL_CLUSTER.replace("name: techpulse", f"name: {NAME}") + "images: {prefix: gone-}\n"
KEPT = ["Images", "Network", "Storage"]
CLUSTER = PROTECTED.replace("access:", "access:\n  deletion_protection: false")


class Place:
    """A deployed cluster with a job, nodes and data, and the command that ends it."""

    def __init__(self, folder, aws) -> None:
        self.aws = aws
        self.file = project_in(folder, CLUSTER)
        self.kubernetes = FakeKubernetes()
        self.console = console(yes=True)
        self.cdk = QuickCdk(self.file, folder, aws)
        assert self.deploy() == 0
        self.bucket = self.outputs("Storage")["BucketName"]
        self.file_system = self.outputs("Storage")["LustreId"]

    def outputs(self, part):
        """Return what outputs.json has of a stack."""
        return json.loads(self.file.with_name("outputs.json").read_text())[f"{NAME}-{part}"]

    def deploy(self, *stacks, **wishes):
        """Deploy the cluster, or some of its stacks."""
        self.console = console(yes=True)
        found = tools(self.file, self.aws, self.console)
        return deploy.run(stacks, found, self.cdk, **wishes)

    def run(self, *, yes=True, answers=None, **wish):
        """Run the command."""
        self.console = console(answers, yes=yes)
        found = tools(self.file, self.aws, self.console)
        return cleanup.run(found, lambda: self.kubernetes, **wish)

    def stacks(self):
        """Return the parts of the cluster that are stacks."""
        found = self.aws.client("cloudformation").describe_stacks()["Stacks"]
        names = [each["StackName"] for each in found if "DELETE" not in each["StackStatus"]]
        return sorted(name.removeprefix(f"{NAME}-") for name in names if name.startswith(NAME))


@pytest.fixture(scope="module")
def deployed(tmp_path_factory, server):
    """Deploy once: the tests below take it apart, one after another."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment("us-east-2").items():
            patch.setenv(name, value)
        from tests.ops.aws.conftest import open_aws  # noqa: PLC0415 -- beside its fixtures

        yield Place(tmp_path_factory.mktemp("gone"), open_aws())


def interrupt(monkeypatch, owner, name):
    """Press Ctrl-C where something is called."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupted)


def test_a_protected_cluster_is_left_alone(deployed):
    """The file says so, and is asked first."""
    deployed.file.write_text(PROTECTED)
    with pytest.raises(Failure) as caught:
        deployed.run()
    deployed.file.write_text(CLUSTER)
    assert caught.value.code == 2
    assert "access.deletion_protection is true - set it to false" in str(caught.value)
    assert len(deployed.stacks()) == 4


def test_no_is_an_answer(deployed):
    """What would go is shown before."""
    assert deployed.run(yes=False, answers="n\n") == 1
    shown = "  all jobs and GPU nodes of gone\n  gone-Cluster\nGo on? [y/N] "
    assert shown in said(deployed.console)
    assert len(deployed.stacks()) == 4


def test_what_fails_is_told_and_the_rest_waits(deployed, server):
    """Jobs and nodes have gone by then: they cost most."""
    eks = deployed.aws.client("eks")
    scaling = {"minSize": 0, "maxSize": 450, "desiredSize": 2}
    eks.update_nodegroup_config(clusterName=NAME, nodegroupName="p4d", scalingConfig=scaling)
    job = {"metadata": {"name": "train", "namespace": "megatron-workshop"}}
    deployed.kubernetes.objects["PyTorchJob"] = [job]
    fail_next(server, "AWS::EKS::AccessEntry", "the entry is in use", "DELETE")
    with pytest.raises(Failure, match="DELETE_FAILED") as caught:
        deployed.run()
    assert "the entry is in use" in str(caught.value)
    assert " - remove what still uses it, then run the command again" in str(caught.value)
    assert deployed.kubernetes.deleted == ["PyTorchJob/train"]
    text = said(deployed.console)
    assert text.index("ended PyTorchJob train") < text.index("p4d: 2 nodes given back")


def test_ctrl_c_in_the_middle_leaves_the_rest_to_the_next_run(deployed, monkeypatch):
    """AWS goes on with the stack that it was told to delete; nobody waits for it."""
    before = deployed.stacks()
    interrupt(monkeypatch, Stacks, "delete")
    assert deployed.run() == 130
    assert said(deployed.console).endswith(
        "AWS goes on with what it was told; meks cleanup does the rest\n"
    )
    assert deployed.stacks() == before


def test_a_second_run_does_the_rest_and_keeps_what_holds_data(deployed):
    """And says what that costs a month."""
    assert deployed.run() == 0
    assert deployed.stacks() == KEPT
    lines = written(deployed.console).splitlines()
    assert lines[0].split() == ["REMAINS", "WHAT", "USD/MONTH"]
    assert [line.split()[-1] for line in lines[1:]] == [
        *("1.00", "408.00", "use", "1.00", "32.85"),
        *("use", "use"),
    ]
    assert "gone-Images   repository gone-megatron-training" in written(deployed.console)
    fsx = deployed.aws.client("fsx")
    assert fsx.describe_file_systems(FileSystemIds=[deployed.file_system])["FileSystems"]


def test_a_deployment_afterwards_finds_what_was_kept(deployed):
    """The same file system, bucket and repositories; nothing new beside them."""
    assert deployed.deploy() == 0
    text = said(deployed.console)
    assert "to make in account 000000000000, us-east-2: gone-Cluster\n" in text
    for part in KEPT:
        assert f"gone-{part}: no changes" in text
    assert deployed.outputs("Storage")["LustreId"] == deployed.file_system
    assert deployed.run() == 0
    assert deployed.stacks() == KEPT


def test_a_third_run_finds_nothing_to_do(deployed):
    """It says again what remains."""
    assert deployed.run(yes=False) == 0
    assert "nothing to delete" in said(deployed.console)
    assert "408.00" in written(deployed.console)


def test_storage_is_asked_for_twice(deployed):
    """`--yes` is no answer to the second question, and another name is none either."""
    assert deployed.run(yes=False, answers="y\nno\n", delete_storage=True) == 1
    assert "for good" in said(deployed.console)
    with pytest.raises(Failure, match="add --confirm gone"):
        deployed.run(delete_storage=True)
    assert deployed.run(delete_storage=True, confirm="gome") == 1
    assert deployed.stacks() == KEPT


def test_storage_goes_with_everything_in_it(deployed):
    """Full buckets too, with every version; then the network that it stood in."""
    s3 = deployed.aws.client("s3")
    for body in (b"1", b"2"):
        s3.put_object(Bucket=deployed.bucket, Key="checkpoint", Body=body)
    s3.delete_object(Bucket=deployed.bucket, Key="checkpoint")
    assert deployed.run(delete_storage=True, confirm="gone") == 0
    assert deployed.stacks() == ["Images"]
    names = [each["Name"] for each in s3.list_buckets()["Buckets"]]
    assert deployed.bucket not in names
    found = deployed.aws.client("fsx").describe_file_systems()["FileSystems"]
    assert deployed.file_system not in [each["FileSystemId"] for each in found]


def test_repositories_without_their_stack_are_taken_over(deployed):
    """Whoever destroyed it by another command has left them in the way of the next one."""
    cloudformation = deployed.aws.client("cloudformation")
    cloudformation.delete_stack(StackName=f"{NAME}-Images")
    assert deployed.stacks() == []
    assert deployed.deploy("Images") == 0
    text = said(deployed.console)
    assert "taken over, with the images in it: repository gone-megatron-training, gone-fsdp" in text
    assert "  take over   MegatronRepository" in text
    assert deployed.deploy("Images") == 0
    assert "gone-Images: no changes" in said(deployed.console)


def test_images_go_with_their_stack(deployed):
    """CloudFormation deletes no repository that holds some, unless it is told to."""
    form = "application/vnd.oci.image.manifest.v1+json"
    manifest = json.dumps({"schemaVersion": 2, "mediaType": form, "config": {}, "layers": []})
    for name in (f"{NAME}-megatron-training", f"{NAME}-fsdp"):
        deployed.aws.client("ecr").put_image(
            repositoryName=name, imageManifest=manifest, imageTag="used"
        )
    assert deployed.run(delete_images=True) == 0
    assert "Images" not in deployed.stacks()


def test_images_go_when_they_are_named(deployed):
    """Repositories too that no stack has any longer."""
    assert deployed.deploy("Images") == 0
    deployed.aws.client("cloudformation").delete_stack(StackName=f"{NAME}-Images")
    assert deployed.run(delete_images=True) == 0
    assert "gone-megatron-training, with all images that were built" in said(deployed.console)
    assert said(deployed.console).endswith("nothing of gone is left\n")


def test_no_second_file_system_is_made_beside_the_first(deployed):
    """One that its stack has left behind may hold all that there is."""
    assert deployed.deploy("Network", "Storage") == 0
    left = deployed.outputs("Storage")["LustreId"]
    cloudformation = deployed.aws.client("cloudformation")
    cloudformation.delete_stack(StackName=f"{NAME}-Storage")
    with pytest.raises(Failure) as caught:
        deployed.deploy("Storage")
    assert caught.value.code == 4
    assert str(caught.value).startswith(
        f"MEKS-0753 {left} of an earlier gone is there without its stack, and a new, empty file "
        "system would be made beside it - use it: storage.lustre.existing"
    )
    deployed.aws.client("fsx").delete_file_system(FileSystemId=left)
    assert deployed.deploy("Storage") == 0


def test_a_stack_that_was_not_deleted_to_its_end_is_not_changed(deployed):
    """Here the first file system's security group still uses one of the network."""
    with pytest.raises(Failure, match="gone-Network: DELETE_FAILED: NodeSecurityGroup"):
        deployed.run(delete_storage=True, confirm="gone")
    with pytest.raises(Failure, match=r"gone-Network: it was to be deleted.* run: meks cleanup"):
        deployed.deploy("Network")
