"""The build's phases, run for real with recorders in place of docker and aws."""

import json
import shutil
from pathlib import Path

import pytest

from megatron_eks.build_context import content_tag, stage
from tests.assets.build_machine import ARGUMENTS, DIGEST, OTHER, PASSWORD, REGISTRY, REPOSITORY, TAG

pytestmark = pytest.mark.tools

CHECKOUT = Path(__file__).parents[2]
IMAGE = f"{REPOSITORY}:{TAG}"


def test_image_is_built_tested_and_pushed_under_its_tag(machine):
    """Login, build, self-test, push, and the digest that jobs are given, in this order."""
    build = machine.run()
    assert build.succeeded, build.err
    login, make, test, push = build.commands("docker")
    assert login == ["login", "--username", "AWS", "--password-stdin", REGISTRY]
    dockerfile = "./assets/images/megatron/Dockerfile"
    arguments = ["--build-arg", "POD_UID=10001"]
    assert make == ["build", *arguments, "--file", dockerfile, "--tag", IMAGE, "."]
    assert test[:2] == ["run", "--rm"]
    assert push == ["push", IMAGE]
    assert build.out.splitlines()[-1] == f"digest: {DIGEST}"
    assert machine.tags() == {TAG: DIGEST}


def test_the_self_test_runs_as_a_pod_does(machine):
    """No network, the pods' user, nothing writable but /tmp, at the level that was asked for."""
    (test,) = [
        each for each in machine.run(TEST_LEVEL="full").commands("docker") if each[0] == "run"
    ]
    options, words = test[: test.index(IMAGE)], test[test.index(IMAGE) + 1 :]
    assert {"--network=none", "--read-only", "--user=10001", "--rm"} <= set(options)
    assert words[0] == "/opt/megatron-eks/images/selftest.py"
    assert words[words.index("--level") + 1] == "full"
    assert (machine.folder / "reports" / "megatron.xml").is_file()


def test_password_goes_through_standard_input(machine):
    """It is in no command line, no output and no variable."""
    build = machine.run()
    (login,) = [(words, stdin) for words, stdin in build.calls if words[1] == "login"]
    assert login[1].strip() == PASSWORD
    assert PASSWORD not in build.out + build.err + json.dumps([words for words, _ in build.calls])


def test_a_recorded_image_is_not_built_again(machine):
    """It is the same content, so a second build has only its report to write."""
    machine.has(**{TAG: DIGEST})
    build = machine.run(RECORDED_DIGEST=DIGEST)
    assert build.succeeded
    assert build.did("docker") == []
    assert f"a build has recorded it as {DIGEST}, so nothing is built" in build.out
    # CodeBuild wants a report of every build.
    assert "skipped" in (machine.folder / "reports" / "megatron.xml").read_text()


def test_a_tag_without_a_record_is_not_taken_for_this_content(machine):
    """Code of any earlier build may have pushed it; what is built here goes under a new tag."""
    machine.has(**{TAG: OTHER})
    build = machine.run()
    assert build.succeeded, build.err
    assert build.did("docker") == ["login", "build", "run", "push"]
    assert machine.tags()[TAG] == OTHER
    (new,) = set(machine.tags()) - {TAG}
    assert new.startswith(f"{TAG}-")
    assert machine.exported() == DIGEST


def test_a_build_records_what_it_pushed_itself_and_nothing_else(machine):
    """CodeBuild keeps the exported digest; one that was only handed to a build is no record."""
    assert machine.run().succeeded
    assert machine.exported() == DIGEST
    assert machine.run(RECORDED_DIGEST=OTHER).succeeded
    assert machine.exported() == ""
    assert not machine.run(FAILS="docker push").succeeded
    assert machine.exported() == ""


@pytest.mark.parametrize("variable", ["RECORDED_DIGEST", "CACHE_FROM"])
def test_what_is_no_digest_is_refused(machine, variable):
    """A tag in its place could be moved."""
    build = machine.run(**{variable: "cache"})
    assert not build.succeeded
    assert f"{variable} is not a digest: 'cache'" in build.err
    assert build.did("docker") == []


@pytest.mark.parametrize(
    "build_args",
    [
        {"EFA_INSTALLER_VERSION": "1.50.0"},
        {"A": "two words", "B": "$(touch /pwned) `id` \"quoted\" 'single'", "C": "a=b"},
        {"A": "line\nbreak", "B": "", "C": "* ? [x]"},
    ],
)
def test_build_arguments_reach_docker_as_they_are(machine, build_args):
    """No shell reads a value again."""
    build_args = ARGUMENTS | build_args
    build = machine.run(json.dumps(build_args))
    assert build.succeeded
    command = build.commands("docker")[1]
    given = [command[place + 1] for place, word in enumerate(command) if word == "--build-arg"]
    assert given == [f"{name}={value}" for name, value in build_args.items()]


@pytest.mark.parametrize("fails", ["docker login", "docker build", "docker run", "docker push"])
def test_a_failed_build_leaves_no_tag(machine, fails):
    """Whatever fails, the registry has nothing new, though CodeBuild runs the last phase."""
    build = machine.run(FAILS=fails, TAG_STRATEGY="latest", CACHE="registry")
    assert not build.succeeded
    steps = ["login", "build", "run", "push"]
    assert build.did("docker") == steps[: steps.index(fails.split()[1]) + 1]
    assert machine.tags() == {}
    assert "digest:" not in build.out


def test_what_was_not_tested_is_not_pushed(machine):
    """The last phase alone finds no mark of the self-test."""
    build = machine.run(FAILS="docker run")
    assert build.phases == {"pre_build": 0, "build": 1, "post_build": 1}
    assert "nothing is pushed: the image was not built, or its tests failed" in build.err


def test_unreadable_arguments_end_the_build(machine):
    """Without this a build would go on with the defaults."""
    build = machine.run("{not json")
    assert not build.succeeded
    assert build.calls == []


def test_refused_question_is_shown(machine):
    """A missing permission is not taken for a missing image."""
    build = machine.run(ANSWER="An error occurred (AccessDeniedException): not authorized")
    assert not build.succeeded
    assert build.commands("docker") == []
    assert "AccessDeniedException" in build.err


def test_build_arguments_are_not_logged(machine):
    """A log is read by more people than a template."""
    build = machine.run(json.dumps(ARGUMENTS | {"A": "visible-only-to-docker"}))
    assert "visible-only-to-docker" not in build.out + build.err


def test_layers_come_from_the_recorded_image_by_its_digest(machine):
    """A tag could have been moved to layers that somebody else has made."""
    build = machine.run(CACHE="registry", CACHE_FROM=OTHER)
    command = build.commands("docker")[1]
    assert command[command.index("--cache-from") + 1] == f"{REPOSITORY}@{OTHER}"
    assert machine.tags() == {TAG: DIGEST}


def test_without_a_recorded_image_every_layer_is_built(machine):
    """The image lists its layers all the same, for the build after it."""
    machine.has(cache=OTHER)
    command = machine.run(CACHE="registry").commands("docker")[1]
    assert "--cache-from" not in command
    assert command[3:5] == ["--build-arg", "BUILDKIT_INLINE_CACHE=1"]


# From a checkout


def test_a_checkout_is_built_when_it_is_what_was_deployed(machine):
    """The tag is computed again from the files that git brought, and the context has them alone."""
    tag = content_tag(CHECKOUT, "megatron", ARGUMENTS | {"A": "1"})
    build = machine.run(json.dumps(ARGUMENTS | {"A": "1"}), source=CHECKOUT, IMAGE_TAG=tag)
    assert build.succeeded, build.err
    assert build.commands("docker")[1][-1] != str(CHECKOUT)
    assert build.commands("docker")[-1] == ["push", f"{REPOSITORY}:{tag}"]


def test_another_commit_than_the_deployed_one_is_not_built_by_hand(machine):
    """The image that manifests name would never appear, and nobody would know why."""
    build = machine.run(source=CHECKOUT)
    assert not build.succeeded
    assert build.calls == []
    assert content_tag(CHECKOUT, "megatron", ARGUMENTS) in build.err
    assert TAG in build.err


def test_a_push_builds_what_was_pushed_under_its_own_tag(machine):
    """The webhook's reason is the new commit; its version is the checkout's own."""
    tag = content_tag(CHECKOUT, "megatron", ARGUMENTS)
    trigger = {"CODEBUILD_WEBHOOK_TRIGGER": "branch/main", "TAG_STRATEGY": "semantic"}
    build = machine.run(source=CHECKOUT, WEBHOOK_BRANCH="main", **trigger)
    assert build.succeeded, build.err
    assert set(machine.tags()) == {tag, "v0.1.0"}


@pytest.mark.parametrize("branch", [{}, {"WEBHOOK_BRANCH": "release"}])
def test_a_variable_of_a_webhook_does_not_excuse_another_commit(machine, branch):
    """Whoever starts a build can set it; only a project with a webhook has pushes to a branch."""
    build = machine.run(source=CHECKOUT, CODEBUILD_WEBHOOK_TRIGGER="branch/main", **branch)
    assert build.phases == {"pre_build": 1}
    assert "this commit builds" in build.err


def test_a_checkout_runs_no_code_that_its_content_does_not_hold(machine, tmp_path):
    """The record of a build vouches for its files and one more; a commit may bring others."""
    source = tmp_path / "checkout"
    stage(CHECKOUT, "megatron", source)
    shutil.copy(CHECKOUT / "megatron_eks" / "build_context.py", source / "megatron_eks")
    for name in ("hashlib", "fnmatch", "megatron_eks/json"):
        (source / f"{name}.py").write_text("raise SystemExit('code of somebody else')")
    tag = content_tag(CHECKOUT, "megatron", ARGUMENTS)
    build = machine.run(source=source, IMAGE_TAG=tag)
    assert build.succeeded, build.err


def test_podman_does_the_same(machine):
    """The engine is a variable; nothing else differs."""
    build = machine.run(ENGINE="podman")
    assert build.succeeded, build.err
    assert build.did("podman") == ["login", "build", "run", "push"]
    assert build.did("docker") == []
