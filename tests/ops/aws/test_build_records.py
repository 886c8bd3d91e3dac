"""Only what CodeBuild recorded of an unchanged build of this content is taken for its image."""

import subprocess
from typing import Any

import pytest

from megatron_eks.ops.cluster import build, build_records, outputs
from megatron_eks.ops.cluster.build_records import Records
from tests.ops.aws.building import DIGEST, PROJECT, REGISTRY, Aws, built
from tests.ops.aws.fakes import Clients, console, project_in, said, tools

EVIL = "sha256:" + "e" * 64
OLDER = "sha256:" + "d" * 64
URI = f"{REGISTRY}/megatron-training:abc"


@pytest.fixture
def aws():
    """Return stubbed services."""
    return Aws()


@pytest.fixture
def place(tmp_path, aws):
    """Return what a command works with."""
    return tools(project_in(tmp_path), Clients(**aws.clients), console())


def find(place, uri=URI):
    """Return what is known of the Megatron image."""
    image = next(each for each in place.plan.images if each.name == "megatron")
    values = dict(zip(image.keys, (uri, "techpulse-megatron"), strict=True))
    return Records(place).find(image, values)


def test_a_tag_that_no_build_recorded_is_built_again(aws, place):
    """Whoever builds any commit can push the tag of a later one, before it exists."""
    aws.stacks()
    aws.history()
    aws.starts()
    aws.build("FAILED", log=False)
    aws.none_recorded()
    assert build.run(["megatron"], place) == 1
    aws.done()


def test_a_tag_that_no_build_recorded_is_not_written_down(aws, place):
    """Jobs would run it with their role."""
    aws.all_stacks()
    aws.history()
    aws.history()
    aws.image(EVIL)
    aws.image()
    path = outputs.record(place)
    assert EVIL not in path.read_text()
    assert "megatron-training:abc is in ECR, and no build recorded it - run: meks build" in said(
        place.console
    )


def test_the_record_counts_and_not_the_tag(aws, place):
    """The tag may name another image by now; what the build exported is what it pushed."""
    aws.recorded(DIGEST)
    assert find(place).digest == DIGEST
    aws.done()


def test_an_image_that_the_registry_lost_is_not_recorded(aws, place):
    """The one before it still stands for the same content."""
    aws.history(built(1, OLDER), built(2, DIGEST))
    aws.image()
    aws.image(OLDER)
    assert find(place).digest == OLDER


OVERRIDDEN: dict[str, dict[str, Any]] = {
    "BUILD_ARGS": {"variables": {"BUILD_ARGS": '{"BASE_IMAGE": "evil.example.com/base"}'}},
    "LD_PRELOAD": {"variables": {"LD_PRELOAD": "/assets/evil.so"}},
    "CODEBUILD_WEBHOOK_TRIGGER": {"variables": {"CODEBUILD_WEBHOOK_TRIGGER": "branch/main"}},
    "buildspec": {"source": {"buildspec": "version: 0.2"}},
    "location": {"source": {"location": "evil/abc.zip"}},
    "type": {"source": {"type": "GITHUB", "location": "https://github.com/evil/x.git"}},
    "image": {"machine": {"image": "evil.example.com/builder"}},
    "certificate": {"machine": {"certificate": "evil/ca.pem"}},
    "serviceRole": {"serviceRole": "arn:aws:iam::123456789012:role/Another"},
    "cache": {"cache": {"type": "S3", "location": "evil/cache"}},
    "secondarySources": {"secondarySources": [{"type": "S3", "location": "evil/x.zip"}]},
    "debugSession": {"debugSession": {"sessionEnabled": True}},
}


@pytest.mark.parametrize("what", OVERRIDDEN)
def test_a_build_that_was_started_with_something_else_records_nothing(aws, place, what):
    """Who may start builds may override nearly all of one; CodeBuild shows it."""
    aws.history(built(1, EVIL, **OVERRIDDEN[what]))
    record = find(place)
    assert (record.digest, record.cache) == (None, None)
    aws.done()
    if "location" not in OVERRIDDEN[what].get("source", {}):
        told = f"note: build 1 of techpulse-megatron records nothing: it ran with another {what}"
        assert told in said(place.console)


def test_a_variable_that_stands_there_twice_records_nothing(aws, place):
    """The second one is as deployed; nobody knows which one the build took."""
    build = built(1, EVIL)
    variables = build["environment"]["environmentVariables"]
    variables.insert(0, {**variables[0], "value": "evil"})
    aws.history(build)
    assert find(place).digest is None


@pytest.mark.parametrize(
    "changes",
    [
        {"buildStatus": "FAILED"},
        {"buildStatus": "STOPPED"},
        {"exportedEnvironmentVariables": []},
        {"exportedEnvironmentVariables": [{"name": "IMAGE_DIGEST", "value": "latest"}]},
    ],
)
def test_a_build_that_did_not_push_records_nothing(aws, place, changes):
    """It failed, or found its image recorded already."""
    aws.history(built(1, DIGEST, **changes))
    assert find(place).digest is None
    aws.done()


def test_what_a_person_may_choose_leaves_the_record(aws, place):
    """Tests and second tags change no byte of an image."""
    chosen = {"TEST_LEVEL": "full", "TAG_STRATEGY": "semantic", "PROJECT_VERSION": "2"}
    aws.history(built(1, DIGEST, variables=chosen))
    aws.image(DIGEST)
    assert find(place).digest == DIGEST


def test_another_content_is_a_cache_and_no_more(aws, place):
    """Its layers come by digest, from the newest that is there."""
    older = {"location": "assets/older.zip"}
    aws.history(built(1, OLDER, source=older), built(2, DIGEST, source=older))
    aws.image()
    aws.image(OLDER)
    record = find(place)
    assert (record.digest, record.cache) == (None, OLDER)
    assert record.variables() == {"CACHE_FROM": OLDER}


def test_layers_of_an_unrecorded_image_spoil_a_record(aws, place):
    """Who starts a build may name any digest; a recorded one is as good as its own build."""
    aws.history(built(1, EVIL, variables={"CACHE_FROM": EVIL}))
    assert find(place).digest is None
    older = built(1, OLDER, source={"location": "assets/older.zip"})
    aws.history(older, built(2, DIGEST, variables={"CACHE_FROM": OLDER}))
    aws.image(DIGEST)
    assert find(place).digest == DIGEST
    aws.done()


def test_a_project_that_is_gone_has_no_builds(aws, place):
    """Its repositories may be there still."""
    error = ("list_builds_for_project", "ResourceNotFoundException")
    aws.stubs["codebuild"].add_client_error(*error)
    assert find(place).digest is None


# From GitHub


class Checkout:
    """A repository that the project is."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.git("init", "-q")
        self.commit("assets/images/megatron/Dockerfile", "FROM base")
        self.commit("megatron_eks/build_context.py", "")

    def git(self, *words):
        """Run git, and return what it says."""
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        command = ["git", "-C", str(self.folder), *who, *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 -- git
        return done.stdout.strip()

    def commit(self, name, text):
        """Commit one file, and return the commit."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.git("add", "--force", ".")
        self.git("commit", "-qm", name)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return the repository of this project, with an image in it."""
    made = Checkout(tmp_path / "checkout")
    monkeypatch.setattr(build_records, "ROOT", made.folder)
    return made


def from_github(aws, monkeypatch, commit, digest=DIGEST):
    """Expect the questions about one build of a commit."""
    source = {"type": "GITHUB", "location": "https://github.com/a/b.git"}
    monkeypatch.setitem(PROJECT, "source", PROJECT["source"] | source)
    aws.history(built(1, digest, sourceVersion="main", resolvedSourceVersion=commit))


def of_this_checkout(place):
    """Return what is known of the image that this checkout makes."""
    image = next(each for each in place.plan.images if each.name == "megatron")
    return find(place, f"{REGISTRY}/megatron-training:{image.tag}")


def test_a_commit_with_the_same_files_records_the_image(aws, place, checkout, monkeypatch):
    """Whatever else it changed: the folders of other images, and dashboards."""
    checkout.commit("assets/images/fsdp/Dockerfile", "FROM other")
    checkout.commit("assets/dashboards/job.json", "{}")
    commit = checkout.commit("README.md", "more")
    checkout.commit("assets/images/fsdp/Dockerfile", "FROM another")
    checkout.commit("assets/dashboards/job.json", "[]")
    from_github(aws, monkeypatch, commit)
    aws.image(DIGEST)
    assert of_this_checkout(place).digest == DIGEST


@pytest.mark.parametrize(
    "name",
    [
        "assets/images/megatron/Dockerfile",
        "megatron_eks/programs/__pycache__/program.cpython-312.pyc",
        "megatron_eks/programs/.hidden.py",
        ".gitattributes",
        ".python-version",
        "assets/.dockerignore",
        "assets/codebuild/build_image.py",
        "megatron_eks/build_context.py",
    ],
)
def test_a_commit_with_other_files_records_nothing(aws, place, checkout, monkeypatch, name):
    """Also with files that the hash of the content leaves out, and code that the build runs."""
    evil = checkout.commit(name, "evil")
    checkout.git("revert", "--no-edit", evil)
    from_github(aws, monkeypatch, evil, EVIL)
    assert of_this_checkout(place).digest is None
    aws.done()


def test_a_commit_that_this_checkout_lacks_is_named(aws, place, checkout, monkeypatch):
    """It may be newer, and git brings it."""
    assert checkout
    from_github(aws, monkeypatch, "1" * 40)
    assert of_this_checkout(place).digest is None
    assert "run: git fetch, which may bring the commit" in said(place.console)


@pytest.mark.parametrize("commit", ["--output=x", "main", "HEAD"])
def test_what_is_no_commit_is_not_asked_of_git(aws, place, checkout, monkeypatch, commit):
    """A name could move, and a word that begins with a hyphen is an option."""
    assert checkout
    from_github(aws, monkeypatch, commit)
    assert of_this_checkout(place).digest is None
