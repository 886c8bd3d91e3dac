"""outputs.json holds what AWS chose, and never loses a digest that still stands for something."""

import json

import pytest

from megatron_eks.config.errors import ConfigError
from megatron_eks.ops.cluster import outputs
from megatron_eks.ops.failure import Failure
from tests.ops.aws.building import DIGEST, REGISTRY, Aws
from tests.ops.aws.fakes import ACCOUNT, CLUSTER, Clients, console, project_in, said, tools, written


@pytest.fixture
def aws():
    """Return stubbed services."""
    return Aws()


def run(folder, aws, output="table"):
    """Run the command and return its console."""
    of = console()
    found = tools(project_in(folder), Clients(**aws.clients), of)
    assert outputs.run(output, found) == 0
    return of


def images(folder):
    """Return what is recorded of images."""
    return json.loads((folder / "outputs.json").read_text())["techpulse-Images"]


def recorded(folder, uri):
    """Let an earlier run have recorded an image."""
    values = {"techpulse-Images": {"MegatronImage": uri, "FsdpImage": f"{REGISTRY}/fsdp:old"}}
    (folder / "outputs.json").write_text(json.dumps(values))


def test_digests_come_from_the_builds(tmp_path, aws):
    """A tag is replaced by what a build of its content has pushed."""
    aws.all_stacks()
    aws.recorded(DIGEST)
    aws.history()
    aws.image()
    of = run(tmp_path, aws)
    assert images(tmp_path)["MegatronImage"] == f"{REGISTRY}/megatron-training@{DIGEST}"
    assert images(tmp_path)["FsdpImage"] == f"{REGISTRY}/fsdp:abc"
    assert "note: fsdp:abc is not built yet - run: meks build" in said(of)
    assert written(of).splitlines()[0].split() == ["OUTPUT", "VALUE"]


def test_a_newer_tag_that_nobody_built_keeps_the_digest(tmp_path, aws):
    """Jobs go on with the image before it, and the command says so."""
    earlier = f"{REGISTRY}/megatron-training@sha256:{'b' * 64}"
    recorded(tmp_path, earlier)
    aws.all_stacks()
    aws.history()
    aws.history()
    aws.image()
    aws.image(f"sha256:{'b' * 64}")
    aws.image()
    of = run(tmp_path, aws)
    assert images(tmp_path)["MegatronImage"] == earlier
    assert "megatron-training:abc is not built, so jobs keep the image before it" in said(of)


def test_a_digest_that_its_repository_has_lost_is_not_kept(tmp_path, aws):
    """It was deleted with its images and made again: no node could pull what is recorded."""
    recorded(tmp_path, f"{REGISTRY}/megatron-training@sha256:{'b' * 64}")
    aws.all_stacks()
    aws.history()
    aws.history()
    for _ in range(3):
        aws.image()
    of = run(tmp_path, aws)
    assert images(tmp_path)["MegatronImage"] == f"{REGISTRY}/megatron-training:abc"
    assert "megatron-training:abc is not built yet - run: meks build" in said(of)


def test_a_digest_of_another_repository_is_not_kept(tmp_path, aws):
    """It is from before the images had another prefix."""
    recorded(tmp_path, f"{REGISTRY}/old-megatron-training@{DIGEST}")
    aws.all_stacks()
    aws.history()
    aws.history()
    aws.image()
    aws.image()
    run(tmp_path, aws)
    assert images(tmp_path)["MegatronImage"] == f"{REGISTRY}/megatron-training:abc"


def test_data_can_be_read_by_programs(tmp_path, aws):
    """The same as the file, on stdout."""
    aws.all_stacks()
    aws.recorded(DIGEST)
    aws.recorded(DIGEST)
    of = run(tmp_path, aws, "json")
    assert json.loads(written(of)) == json.loads((tmp_path / "outputs.json").read_text())


def test_another_clusters_file_is_refused(tmp_path, aws):
    """Its names would stand beside those of this one."""
    (tmp_path / "outputs.json").write_text('{"other-Storage": {"BucketName": "b"}}')
    file = project_in(tmp_path)
    with pytest.raises(ConfigError, match="MEKS-0007"):
        tools(file, Clients(**aws.clients), console())


def test_another_accounts_image_is_refused(tmp_path, aws):
    """It would run with the role of the jobs; the account of examples stands for none."""
    other = REGISTRY.replace(ACCOUNT, "999999999999")
    recorded(tmp_path, f"{other}/megatron-training@{DIGEST}")
    with pytest.raises(ConfigError, match=f"MEKS-0008 .*MegatronImage.*of account {ACCOUNT}"):
        tools(project_in(tmp_path), Clients(**aws.clients), console())
    example = CLUSTER.replace(ACCOUNT, "111122223333")
    (tmp_path / "outputs.json").write_text(
        json.dumps({"techpulse-Images": {"MegatronImage": f"{other}/megatron-training@{DIGEST}"}})
    )
    assert tools(project_in(tmp_path, example), Clients(**aws.clients), console())


def test_nothing_deployed_is_not_found(tmp_path, aws):
    """3, and what to run."""
    for _ in range(5):
        aws.stubs["cloudformation"].add_client_error(
            "describe_stacks", "ValidationError", "Stack with id x does not exist"
        )
    found = tools(project_in(tmp_path), Clients(**aws.clients), console())
    with pytest.raises(Failure, match="run: meks deploy") as caught:
        outputs.run("table", found)
    assert caught.value.code == 3
