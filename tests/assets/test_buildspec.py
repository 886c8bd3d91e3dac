"""The build, run for real with recorders in place of docker and aws."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from megatron_eks.build_context import content_tag

BUILDSPEC = Path(__file__).parents[2] / "assets" / "codebuild" / "buildspec.yml"
REGISTRY = "111122223333.dkr.ecr.us-east-2.amazonaws.com"
PASSWORD = "not-a-real-one"  # noqa: S105 -- what the recorder answers
DIGEST = f"sha256:{'ab' * 32}"

RECORDER = f"""#!{sys.executable}
import json, os, pathlib, sys
state = pathlib.Path(os.environ["STATE"])
words = [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]
stdin = sys.stdin.read() if "--password-stdin" in words else ""
with (state / "calls").open("a") as calls:
    calls.write(json.dumps([words, stdin]) + "\\n")
if " ".join(words[:2]) == os.environ.get("FAILS"):
    sys.exit("refused")
if words[1:3] == ["ecr", "get-login-password"]:
    print("{PASSWORD}")
if words[1:3] == ["ecr", "describe-images"]:
    if not (state / "pushed").exists():
        sys.exit(os.environ["ANSWER"])
    print("{DIGEST}")
if words[1] == "push":
    (state / "pushed").touch()
"""


@dataclass(frozen=True)
class Build:
    """What a build did and said."""

    code: int
    out: str
    err: str
    calls: list[tuple[list[str], str]]
    """Command line and standard input of each call."""

    def commands(self, program: str) -> list[list[str]]:
        """Return the calls of one program."""
        return [words[1:] for words, _ in self.calls if words[0] == program]


class Project:
    """A CodeBuild project of a single machine."""

    def __init__(self, state: Path) -> None:
        self.state = state
        programs = state / "bin"
        programs.mkdir()
        for name in ("aws", "docker"):
            (programs / name).write_text(RECORDER)
            (programs / name).chmod(0o755)
        self.path = f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin"

    def run(
        self, build_args: str = "{}", *, source: Path | None = None, **environment: str
    ) -> Build:
        """Run the commands as CodeBuild does, in the asset's folder or in a checkout."""
        spec = yaml.safe_load(BUILDSPEC.read_text())
        assert spec["env"]["shell"] == "bash"
        (command,) = spec["phases"]["build"]["commands"]
        done = subprocess.run(  # noqa: S603 -- the build under test
            ["/bin/bash", "-c", command],
            env={
                "PATH": self.path,
                "STATE": str(self.state),
                "ANSWER": "An error occurred (ImageNotFoundException) when calling DescribeImages",
                "IMAGE_NAME": "megatron",
                "REPOSITORY_URI": f"{REGISTRY}/megatron-training",
                "IMAGE_TAG": "0123456789abcdef0123",
                "BUILD_ARGS": build_args,
                **environment,
            },
            cwd=source or self.state,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        record = self.state / "calls"
        lines = record.read_text().splitlines() if record.exists() else []
        calls = [(words, stdin) for words, stdin in map(json.loads, lines)]
        return Build(done.returncode, done.stdout, done.stderr, calls)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose repository is empty."""
    return Project(tmp_path)


IMAGE = f"{REGISTRY}/megatron-training:0123456789abcdef0123"


def test_image_is_built_and_pushed_under_its_tag(project):
    """Login, build, push, and the digest that jobs are given, in this order."""
    build = project.run()
    assert build.code == 0
    assert build.commands("docker") == [
        ["login", "--username", "AWS", "--password-stdin", REGISTRY],
        ["build", "--file", "images/megatron/Dockerfile", "--tag", IMAGE, "."],
        ["push", IMAGE],
    ]
    assert build.out.splitlines()[-1] == f"digest: {DIGEST}"


def test_password_goes_through_standard_input(project):
    """It is in no command line, no output and no variable."""
    build = project.run()
    (login,) = [(words, stdin) for words, stdin in build.calls if words[1] == "login"]
    assert login[1].strip() == PASSWORD
    assert PASSWORD not in build.out + build.err + json.dumps([words for words, _ in build.calls])


def test_existing_tag_is_left_alone(project):
    """The tag is immutable and names this very source, so a second build does nothing."""
    project.run()
    (project.state / "calls").unlink()
    build = project.run()
    assert build.code == 0
    assert build.commands("docker") == []
    assert "exists already and its tag cannot change, so nothing is built" in build.out
    assert build.out.splitlines()[-1] == f"digest: {DIGEST}"


@pytest.mark.parametrize(
    "build_args",
    [
        {"EFA_INSTALLER_VERSION": "1.50.0"},
        {"A": "two words", "B": "$(touch /pwned) `id` \"quoted\" 'single'", "C": "a=b"},
        {"A": "line\nbreak", "B": "", "C": "* ? [x]"},
    ],
)
def test_build_arguments_reach_docker_as_they_are(project, build_args):
    """No shell reads a value again."""
    build = project.run(json.dumps(build_args))
    assert build.code == 0
    command = build.commands("docker")[1]
    given = [command[place + 1] for place, word in enumerate(command) if word == "--build-arg"]
    assert given == [f"{name}={value}" for name, value in build_args.items()]


@pytest.mark.parametrize("fails", ["docker login", "docker build", "docker push"])
def test_a_failed_build_leaves_no_tag(project, fails):
    """The build fails, and nothing after the failing step runs."""
    build = project.run(FAILS=fails)
    assert build.code != 0
    steps = ["docker login", "docker build", "docker push"]
    done = [f"docker {command[0]}" for command in build.commands("docker")]
    assert done == steps[: steps.index(fails) + 1]
    assert "digest:" not in build.out


def test_unreadable_arguments_end_the_build(project):
    """Without this a build would go on with the defaults."""
    build = project.run("{not json")
    assert build.code != 0
    assert [command[0] for command in build.commands("docker")] == ["login"]


def test_refused_question_is_shown(project):
    """A missing permission is not taken for a missing image."""
    build = project.run(ANSWER="An error occurred (AccessDeniedException): not authorized")
    assert build.code != 0
    assert build.commands("docker") == []
    assert "AccessDeniedException" in build.err


def test_commands_do_not_trace(project):
    """Tracing would print build arguments into the log."""
    build = project.run('{"A": "visible-only-to-docker"}')
    assert "visible-only-to-docker" not in build.out + build.err


CHECKOUT = Path(__file__).parents[2]


def test_a_checkout_is_built_when_it_is_what_was_deployed(project):
    """The tag is computed again from the files that git brought, and the build runs in assets/."""
    tag = content_tag(CHECKOUT / "assets", "megatron", {"A": "1"})
    build = project.run('{"A": "1"}', source=CHECKOUT, IMAGE_TAG=tag)
    assert build.code == 0, build.err
    assert build.commands("docker")[-1] == ["push", f"{REGISTRY}/megatron-training:{tag}"]


def test_another_commit_than_the_deployed_one_is_not_built_by_hand(project):
    """The image that manifests name would never appear, and nobody would know why."""
    build = project.run(source=CHECKOUT)
    assert build.code != 0
    assert build.calls == []
    assert content_tag(CHECKOUT / "assets", "megatron", {}) in build.err
    assert "0123456789abcdef0123" in build.err


def test_a_push_builds_what_was_pushed_under_its_own_tag(project):
    """The webhook's reason is the new commit; its tag is in the log for the next deployment."""
    tag = content_tag(CHECKOUT / "assets", "megatron", {})
    build = project.run(source=CHECKOUT, CODEBUILD_WEBHOOK_TRIGGER="branch/main")
    assert build.code == 0, build.err
    assert build.commands("docker")[-1] == ["push", f"{REGISTRY}/megatron-training:{tag}"]
