"""`meks build` follows CodeBuild, and records a digest only of what was built."""

import json

import pytest

from megatron_eks.ops.cluster import build
from megatron_eks.ops.failure import Failure
from tests import hostile
from tests.ops.aws.building import DIGEST, REGISTRY, Aws
from tests.ops.aws.fakes import Clients, clock_of, console, project_in, said, tools


@pytest.fixture
def aws():
    """Return stubbed services."""
    return Aws()


@pytest.fixture
def place(tmp_path, aws):
    """Return what a command works with."""
    return tools(project_in(tmp_path), Clients(**aws.clients), console())


def test_a_build_is_followed_until_its_digest_is_recorded(aws, place, tmp_path):
    """Phases and log as they come, then the digest in the place of the tag."""
    aws.stacks()
    aws.history()
    aws.stubs["codebuild"].add_response("list_builds_for_project", {})
    started = {"build": {"id": "techpulse-megatron:1", "buildNumber": 7}}
    aws.stubs["codebuild"].add_response("start_build", started)
    aws.build("IN_PROGRESS", ("SUBMITTED", "SUCCEEDED", ""), ("QUEUED", "", ""), log=False)
    aws.build("IN_PROGRESS", ("SUBMITTED", "SUCCEEDED", ""), ("QUEUED", "SUCCEEDED", ""))
    aws.lines("", "t1", "Step 1/9\n")
    aws.lines("t1", "t1")
    aws.build("SUCCEEDED", ("BUILD", "SUCCEEDED", ""))
    aws.lines("t1", "t2", "digest: sha256\x1b[0m\n")
    aws.lines("t2", "t2")
    aws.all_stacks()
    aws.recorded(DIGEST)
    aws.history()
    aws.image()
    aws.image(DIGEST)
    (tmp_path / "outputs.json").write_text(
        json.dumps({"techpulse-Images": {"FsdpImage": f"{REGISTRY}/fsdp@{DIGEST}"}})
    )
    assert build.run(["megatron"], place) == 0
    aws.done()
    text = said(place.console)
    assert "megatron: SUBMITTED SUCCEEDED\nmegatron: QUEUED SUCCEEDED\n  Step 1/9\n" in text
    assert "megatron: BUILD SUCCEEDED\n  digest: sha256[0m\nmegatron: SUCCEEDED after 10 s" in text
    assert clock_of(place.console).slept == [5, 5]
    images = json.loads((tmp_path / "outputs.json").read_text())["techpulse-Images"]
    assert images["MegatronImage"] == f"{REGISTRY}/megatron-training@{DIGEST}"
    assert images["FsdpImage"] == f"{REGISTRY}/fsdp@{DIGEST}"
    assert "note: fsdp:abc is not built, so jobs keep the image before it" in text


def test_logs_of_a_build_do_not_act_on_a_terminal(aws, place):
    """What a Dockerfile prints, and what a failed phase says."""
    aws.stacks()
    aws.history()
    aws.stubs["codebuild"].add_response("list_builds_for_project", {})
    aws.stubs["codebuild"].add_response("start_build", {"build": {"id": "techpulse-megatron:1"}})
    aws.build("FAILED", ("BUILD", "FAILED", hostile.ALL))
    aws.lines("", "t1", *(f"{text}\n" for text in hostile.CORPUS.values()))
    aws.lines("t1", "t1")
    aws.none_recorded()
    assert build.run(["megatron"], place) == 1
    assert hostile.acting(said(place.console)) == []


def test_a_failed_build_says_phase_reason_and_remedy(aws, place):
    """The last lines are on the screen already; the last of them end the message."""
    aws.stacks()
    aws.history()
    aws.stubs["codebuild"].add_response("list_builds_for_project", {})
    aws.stubs["codebuild"].add_response("start_build", {"build": {"id": "techpulse-megatron:1"}})
    aws.build("FAILED", ("SUBMITTED", "SUCCEEDED", ""), ("BUILD", "FAILED", ""))
    aws.lines("", "t1", "ERROR: no space left on device\n")
    aws.lines("t1", "t1")
    aws.none_recorded()
    assert build.run(["megatron"], place) == 1
    aws.done()
    assert said(place.console).splitlines()[-1] == (
        "MEKS-0754 build 7 of megatron: BUILD FAILED: the disk is full: base image, layers and the "
        "new image need some 120 GB together - free disk (docker system prune -a, podman system "
        "prune -a), or build without --local: CodeBuild's machine for it has 256 GB; leave vLLM "
        "and the like out of requirements.in"
    )


def test_a_missing_source_has_a_remedy_of_its_own(aws, place):
    """CodeBuild's own words come with it."""
    aws.stacks()
    aws.history()
    aws.stubs["codebuild"].add_response("list_builds_for_project", {})
    aws.stubs["codebuild"].add_response("start_build", {"build": {"id": "techpulse-megatron:1"}})
    message = "NoSuchKey: The specified key does not exist"
    aws.build("FAILED", ("DOWNLOAD_SOURCE", "FAILED", message), log=False)
    aws.none_recorded()
    assert build.run(["megatron"], place) == 1
    assert f"DOWNLOAD_SOURCE FAILED: {message} - the source is gone" in said(place.console)


def test_a_build_under_way_is_followed_instead_of_a_second(aws, place):
    """After Ctrl-C the same command comes back to it."""
    aws.stacks()
    aws.history()
    ids = {"ids": ["techpulse-megatron:1"]}
    aws.stubs["codebuild"].add_response("list_builds_for_project", ids)
    aws.build("IN_PROGRESS", log=False)
    aws.build("SUCCEEDED", log=False)
    aws.all_stacks()
    aws.recorded(DIGEST)
    aws.recorded(DIGEST)
    assert build.run(["megatron"], place) == 0
    aws.done()
    assert "techpulse-megatron: following build 7, under way" in said(place.console)


def test_ctrl_c_leaves_the_build_and_the_next_run_follows_it(aws, place):
    """CodeBuild goes on; nothing is started twice."""
    aws.stacks()
    aws.history()
    aws.starts()
    aws.build("IN_PROGRESS", ("SUBMITTED", "SUCCEEDED", ""), ("QUEUED", "", ""), log=False)

    def interrupted(_):
        raise KeyboardInterrupt

    clock_of(place.console).during = interrupted
    assert build.run(["megatron"], place) == 130
    assert said(place.console).endswith("the build goes on; `meks build` follows it again\n")


def test_what_is_built_already_is_not_built_again(aws, place, tmp_path):
    """The tag is the hash of the source, so the image is the same."""
    aws.stacks()
    aws.recorded(DIGEST)
    aws.recorded(DIGEST)
    aws.all_stacks()
    aws.recorded(DIGEST)
    aws.recorded(DIGEST)
    assert build.run([], place) == 0
    aws.done()
    outputs = json.loads((tmp_path / "outputs.json").read_text())
    assert outputs["techpulse-Images"]["FsdpImage"] == f"{REGISTRY}/fsdp@{DIGEST}"
    assert outputs["techpulse-Images"]["FsdpBuildProject"] == "techpulse-fsdp"


def test_before_a_deployment_there_is_nothing_to_build(aws, place):
    """3 is not found, and the command that makes it is named."""
    aws.stubs["cloudformation"].add_client_error(
        "describe_stacks", "ValidationError", "Stack with id techpulse-Images does not exist"
    )
    with pytest.raises(Failure, match="run: meks deploy Images") as caught:
        build.run([], place)
    assert caught.value.code == 3
