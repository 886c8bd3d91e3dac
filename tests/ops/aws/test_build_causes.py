"""What `meks build` asks of its builds, and which failures it explains."""

import subprocess
from importlib.metadata import version

import pytest

from megatron_eks.ops.aws.causes import BUILDS, cause_of
from megatron_eks.ops.cluster import build, build_records
from megatron_eks.ops.failure import Failure
from tests.ops.aws.building import DIGEST, Aws
from tests.ops.aws.fakes import CLUSTER, Clients, console, project_in, said, tools

DONE = ("SUBMITTED", "SUCCEEDED", "")

# What engines and registries really say, and a word of what meks makes of it.
SAID = {
    "ERROR: failed to solve: write /var/lib/docker/tmp: no space left on device": "disk is full",
    "Error: writing blob: storing blob: write /var/tmp/x: disk quota exceeded": "disk is full",
    "toomanyrequests: Rate exceeded": "limits how often",
    "error pulling image: 503 Service Unavailable": "did not answer",
    "net/http: TLS handshake timeout": "did not answer",
    "failed to copy: read tcp 10.0.0.1: connection reset by peer": "did not answer",
    "dial tcp: lookup nvcr.io: no such host": "did not answer",
    "denied: Your authorization token has expired. Reauthenticate": "does not know who",
    "no basic auth credentials": "does not know who",
    "manifest for nvcr.io/nvidia/nemo:1 not found: manifest unknown": "does not have the base",
    "name unknown: The repository with name 'x' does not exist in the registry": "no such repo",
    "x509: certificate signed by unknown authority": "certificate is not trusted",
    "tag invalid: The image tag '1' already exists and cannot be overwritten because the tag is "
    "immutable.": "tags do not move",
    "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES: they do not match the hashes": "not what was",
    '{"program": "gate", "status": "check failed", "versions": {}}': "the gate refused",
    "error test: docker run failed with exit code 4": "pass its test",
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock": "engine does not run",
    "error: process exited with exit code: 137": "memory ran out",
    "error check: v1.4.0 names another image already (sha256:1), and tags": "tag that may not move",
    "RuntimeError: The detected CUDA version (12.4) mismatches the version": "another CUDA",
}


@pytest.fixture
def aws():
    """Return stubbed services."""
    return Aws()


@pytest.mark.parametrize("line", SAID)
def test_what_engines_and_registries_say_is_explained(line):
    """Each with what to do; the last lines of a log are enough."""
    cause = cause_of(["Step 3/9", line, "exit status 1"])
    assert cause is not None
    assert SAID[line] in cause.found
    assert cause.remedy


def test_what_a_failed_test_prints_is_no_reason_of_the_engine():
    """It has no network, and fails as often as it is tried; 125 is the engine's own failure."""
    lines = ["socket.gaierror: Temporary failure in name resolution"]
    lines.append("error test: the image does not pass its test: podman run failed with exit code ")
    test, engine = (cause_of([*lines[:1], lines[1] + code]) for code in ("1", "125"))
    assert test is not None
    assert engine is not None
    assert "does not pass" in test.found
    assert "did not answer" in engine.found


def test_every_cause_is_met():
    """A pattern that nothing matches would explain nothing."""
    assert {cause_of([line]) for line in SAID} == set(BUILDS)


def test_unknown_words_are_shown_as_they_are():
    """No explanation is better than a wrong one."""
    assert cause_of(["ValueError: no such thing"]) is None


def test_a_version_s_tag_is_that_of_this_checkout(aws, tmp_path):
    """CodeBuild has no pyproject.toml in an asset; what is built already is tagged as well."""
    text = CLUSTER + "images:\n  megatron: {tag_strategy: semantic}\n"
    place = tools(project_in(tmp_path, text), Clients(**aws.clients), console())
    aws.stacks()
    aws.recorded(DIGEST)
    aws.starts(PROJECT_VERSION=version("megatron-eks"), RECORDED_DIGEST=DIGEST)
    aws.build("FAILED", DONE, ("BUILD", "FAILED", "docker run failed with exit code 4"), log=False)
    aws.none_recorded()
    assert build.run(["megatron"], place) == 1
    aws.done()
    assert "does not pass its test" in said(place.console)


def test_a_machine_that_never_came_is_told(aws, tmp_path):
    """CodeBuild's own phases fail for its own reasons."""
    place = tools(project_in(tmp_path), Clients(**aws.clients), console())
    aws.stacks()
    aws.history()
    aws.starts()
    aws.build("FAILED", ("PROVISIONING", "FAILED", "no capacity"), log=False)
    aws.none_recorded()
    assert build.run(["megatron"], place) == 1
    assert "PROVISIONING FAILED: no capacity - CodeBuild got no machine" in said(place.console)


def _repository(folder, monkeypatch):
    """Make a checkout with a commit, which the project then is."""
    (folder / "assets").mkdir()
    (folder / "assets" / "one.py").write_text("1")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"],
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True)  # noqa: S603, S607 -- git
    monkeypatch.setattr(build_records, "ROOT", folder)


def test_the_commit_is_told_where_it_is_what_is_built(tmp_path, monkeypatch):
    """Forty digits; changes outside assets/ are not in the image."""
    _repository(tmp_path, monkeypatch)
    (tmp_path / "notes.md").write_text("2")
    assert len(build_records.revision()) == 40


def test_changes_that_the_commit_lacks_refuse_its_tag(tmp_path, monkeypatch):
    """The tag would name another content than the commit's."""
    _repository(tmp_path, monkeypatch)
    (tmp_path / "assets" / "one.py").write_text("2")
    with pytest.raises(Failure, match=r"the images' files have other changes \(assets/one.py\)"):
        build_records.revision()


def test_without_git_there_is_no_commit(tmp_path, monkeypatch):
    """An archive of the project has none."""
    monkeypatch.setattr(build_records, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(Failure, match="git does not tell the commit"):
        build_records.revision()
