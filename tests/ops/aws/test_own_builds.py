"""`meks build` of images of the user's: which records count, and what a local build starts from."""

import pytest
import yaml

from megatron_eks.ops.cluster import build, local_build
from megatron_eks.ops.cluster.build_records import Records
from megatron_eks.ops.failure import Failure
from tests.ops.aws.building import DIGEST, REGISTRY, Aws, built
from tests.ops.aws.fakes import CLUSTER, Clients, console, project_in, said, tools
from tests.ops.aws.test_local_build import Engines

OWN = "sha256:" + "b" * 64
OTHER = f"{REGISTRY}/fsdp@sha256:" + "e" * 64
BASE = f"{REGISTRY}/fsdp@{DIGEST}"
VALUES = {
    "FsdpImage": f"{REGISTRY}/fsdp:abc",
    "FsdpBuildProject": "techpulse-fsdp",
    "OwnTrainerImage": f"{REGISTRY}/trainer:abc",
    "OwnTrainerBuildProject": "techpulse-trainer",
}


@pytest.fixture
def aws():
    """Return stubbed services."""
    return Aws()


@pytest.fixture
def place(tmp_path, aws):
    """Return what a command works with: a cluster with an image of the user's."""
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "Dockerfile").write_text("ARG BASE_IMAGE\nFROM $BASE_IMAGE\n")
    own = {"name": "trainer", "context": "trainer", "base": "fsdp", "test": "true"}
    text = yaml.safe_dump({**yaml.safe_load(CLUSTER), "images": {"own": [own]}})
    return tools(project_in(tmp_path, text), Clients(**aws.clients), console())


@pytest.mark.parametrize(
    ("base", "counts"), [(BASE, True), (OTHER, False), (f"{REGISTRY}/fsdp:abc", False), ("", False)]
)
def test_a_build_counts_that_started_from_a_recorded_image(aws, place, base, counts):
    """Whoever starts a build can name any base, and jobs would run it with their role."""
    aws.recorded(DIGEST)
    aws.history(built(2, OWN, variables={"BASE_IMAGE": base} if base else {}))
    if counts:
        aws.image(OWN)
    (image,) = (each for each in place.plan.images if each.own)
    record = Records(place).find(image, VALUES)
    aws.done()
    assert record.digest == (OWN if counts else None)
    assert record.base == BASE
    assert record.cache is None


def test_no_image_of_ours_counts_that_was_given_a_base(aws, place):
    """Only those of the user's start from one that is named at the start."""
    aws.history(built(1, DIGEST, variables={"BASE_IMAGE": OTHER}))
    ours = next(each for each in place.plan.images if each.name == "fsdp")
    assert Records(place).find(ours, VALUES).digest is None


def test_an_unknown_name_is_told_with_the_known_ones(place):
    """Before anything is asked of AWS."""
    with pytest.raises(Failure, match="did you mean 'trainer'") as caught:
        build.run(["trainr"], place)
    assert caught.value.code == 2


def test_an_image_that_was_added_since_the_deployment_is_told(aws, place):
    """Its repository is not there, though those of the others are."""
    aws.stacks()
    with pytest.raises(Failure, match="trainer has no repository") as caught:
        build.run(["trainer"], place)
    assert caught.value.code == 3


def test_a_local_build_starts_from_what_was_built_here(aws, place, tmp_path, monkeypatch):
    """The base first, whatever the order of names; without an account nothing else is there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engines = Engines(tmp_path / "bin", monkeypatch)
    engines.install("docker")
    missing = "Stack with id techpulse-Images does not exist"
    for _ in range(2):
        aws.stubs["cloudformation"].add_client_error("describe_stacks", "ValidationError", missing)
    assert local_build.run(["trainer", "fsdp"], place) == 0
    assert engines.did() == ["docker build", "docker run", "docker build", *["docker run"] * 2]
    tags = {each.name: each.tag for each in place.plan.images}
    (_, own) = [words for words, _ in engines.calls() if words[1] == "build"]
    assert f"BASE_IMAGE=fsdp:{tags['fsdp']}" in own
    assert own[own.index("--tag") + 1] == f"trainer:{tags['trainer']}"
    assert local_build.run(["trainer"], place) == 1
    assert "starts from fsdp, which has no recorded build" in said(place.console)
