"""`meks build --local` with recorders in place of docker and podman, and a stubbed registry."""

import base64
import json
import sys

import pytest

from megatron_eks.ops.cluster import local_build
from megatron_eks.ops.failure import Failure
from tests.ops.aws.building import DIGEST, REGISTRY, Aws
from tests.ops.aws.fakes import Clients, console, project_in, said, tools

RECORDER = f"""#!{sys.executable} -SE
import json, os, pathlib, sys
folder = pathlib.Path(__file__).parent
words = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
stdin = sys.stdin.read() if "--password-stdin" in words else ""
if words[1] != "info":
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps([words, stdin]) + "\\n")
fails = folder / f"fails-{{words[1]}}"
if fails.exists():
    answer = fails.read_text()
    fails.unlink()
    sys.exit(answer)
"""


class Engines:
    """The engines on the path, and what was asked of them."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        folder.mkdir()
        monkeypatch.setenv("PATH", str(folder))

    def install(self, name):
        """Put an engine on the path."""
        (self.folder / name).write_text(RECORDER)
        (self.folder / name).chmod(0o755)

    def fail(self, action, words):
        """Let the next call of an action fail."""
        (self.folder / f"fails-{action}").write_text(words)

    def calls(self):
        """Return the command lines, and what was given on standard input."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def did(self):
        """Return engine and action of each call."""
        return [" ".join(words[:2]) for words, _ in self.calls()]


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """Return a machine without an engine."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Engines(tmp_path / "bin", monkeypatch)


@pytest.fixture
def aws():
    """Return stubbed services."""
    return Aws()


@pytest.fixture
def place(tmp_path, aws):
    """Return what a command works with."""
    return tools(project_in(tmp_path), Clients(**aws.clients), console())


def deployed(aws, tagged=None, *, logs_in=True, pushes=True):
    """Expect the questions of a build whose repositories exist."""
    aws.stacks()
    aws.image(tagged)
    if logs_in:
        token = base64.b64encode(b"AWS:secret").decode()
        answer = {"authorizationData": [{"authorizationToken": token}]}
        aws.stubs["ecr"].add_response("get_authorization_token", answer)
    if pushes:
        aws.image(DIGEST)
    aws.none_recorded()


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_the_image_is_built_tested_and_pushed(aws, place, engines, engine):
    """The same steps as in CodeBuild, with either engine, and the digest is recorded."""
    engines.install(engine)
    deployed(aws)
    assert local_build.run(["megatron"], place) == 0
    aws.done()
    assert engines.did() == [f"{engine} {step}" for step in ("login", "build", "run", "push")]
    (login, password), (build, _), (test, _), (push, _) = engines.calls()
    image = next(each for each in place.plan.images if each.name == "megatron")
    assert push[2] == f"{REGISTRY}/megatron-training:{image.tag}"
    assert f"{build[-1]}/assets/images/megatron/Dockerfile" in build
    assert test[test.index("--level") + 1] == "standard"
    assert (login[-1], password) == (REGISTRY, "secret")
    assert "secret" not in said(place.console)


def test_docker_is_taken_where_both_are(aws, place, engines):
    """One has to be first."""
    engines.install("podman")
    engines.install("docker")
    deployed(aws)
    assert local_build.run(["megatron"], place) == 0
    assert engines.did()[1] == "docker build"


def test_without_an_engine_the_way_out_is_named(place, engines):
    """Nothing is asked of AWS before."""
    del engines
    with pytest.raises(Failure, match="install one, or build on AWS: meks build"):
        local_build.run([], place)


def test_an_engine_that_does_not_answer_is_passed_over_and_named(aws, place, engines):
    """The command line of docker is there without its daemon; podman needs none."""
    engines.install("docker")
    engines.fail("info", "Server:\nCannot connect to the Docker daemon")
    with pytest.raises(Failure, match=r"docker does not answer: Cannot connect .* start one"):
        local_build.run([], place)
    engines.fail("info", "Cannot connect to the Docker daemon")
    engines.install("podman")
    deployed(aws)
    assert local_build.run(["megatron"], place) == 0
    assert engines.did()[1] == "podman build"


def test_without_repositories_it_builds_and_tests(aws, place, engines):
    """An account is not needed to try an image."""
    engines.install("docker")
    aws.stubs["cloudformation"].add_client_error(
        "describe_stacks", "ValidationError", "Stack with id techpulse-Images does not exist"
    )
    assert local_build.run(["fsdp"], place) == 0
    assert engines.did() == ["docker build", "docker run"]
    assert "no repositories are deployed, so nothing is pushed" in said(place.console)


def test_what_is_built_already_is_not_built_again(aws, place, engines):
    """The file beside the cluster file says that it was built before."""
    engines.install("docker")
    known = {"techpulse-Images": {"MegatronImage": f"{REGISTRY}/megatron-training@{DIGEST}"}}
    place.cluster_file.with_name("outputs.json").write_text(json.dumps(known))
    deployed(aws, DIGEST, logs_in=False, pushes=False)
    aws.image(DIGEST)
    assert local_build.run(["megatron"], place) == 0
    assert not (engines.folder / "calls").exists()


def test_a_tag_that_nobody_recorded_is_left_and_a_new_one_pushed(aws, place, engines):
    """Any build may have pushed it; the image of this content goes beside it."""
    engines.install("docker")
    deployed(aws, DIGEST)
    assert local_build.run(["megatron"], place) == 0
    push, _ = engines.calls()[-1]
    image = next(each for each in place.plan.images if each.name == "megatron")
    assert push[2].startswith(f"{REGISTRY}/megatron-training:{image.tag}-")


def test_a_full_disk_is_explained(aws, place, engines):
    """Nothing is pushed."""
    engines.install("docker")
    engines.fail("build", "write /var/lib/docker: no space left on device")
    deployed(aws, pushes=False)
    assert local_build.run(["megatron"], place) == 1
    assert engines.did() == ["docker login", "docker build"]
    assert "build of megatron: the disk is full" in said(place.console)
    assert "docker system prune -a" in said(place.console)


def test_a_failed_self_test_pushes_nothing(aws, place, engines):
    """And the next command is named."""
    engines.install("docker")
    engines.fail("run", "error fsdp: failed")
    deployed(aws, pushes=False)
    assert local_build.run(["megatron"], place) == 1
    assert engines.did() == ["docker login", "docker build", "docker run"]
    assert "test of megatron: the image does not pass its test" in said(place.console)


def test_a_refused_login_is_explained(aws, place, engines):
    """ECR's and the engine's own words come with it."""
    engines.install("docker")
    engines.fail("login", "Error response from daemon: 401 unauthorized")
    deployed(aws)
    with pytest.raises(Failure, match="docker login: Error response"):
        local_build.run(["megatron"], place)
