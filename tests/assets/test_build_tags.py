"""Tags that a strategy adds beside that of an image's content."""

import pytest

from tests.assets.build_machine import DIGEST, OTHER, TAG
from tests.assets.test_build_image import IMAGE

REVISION = "0f" * 20


@pytest.mark.parametrize(
    ("strategy", "environment", "extra"),
    [
        ("auto", {}, None),
        ("semantic", {"PROJECT_VERSION": "1.4.0"}, "v1.4.0"),
        ("git-sha", {"SOURCE_REVISION": REVISION}, "git-0f0f0f0f0f0f"),
        ("git-sha", {"CODEBUILD_RESOLVED_SOURCE_VERSION": REVISION}, "git-0f0f0f0f0f0f"),
        ("latest", {}, "latest"),
    ],
)
def test_a_strategy_adds_one_tag_beside_the_content_s(machine, strategy, environment, extra):
    """Manifests name the content's tag whatever the strategy; it is pushed first."""
    build = machine.run(TAG_STRATEGY=strategy, **environment)
    assert build.succeeded, build.err
    assert machine.tags() == {tag: DIGEST for tag in (TAG, extra) if tag}
    pushes = [words[1] for words in build.commands("docker") if words[0] == "push"]
    assert pushes[0] == IMAGE


@pytest.mark.parametrize(
    ("strategy", "environment", "tag"),
    [
        ("semantic", {"PROJECT_VERSION": "1.4.0"}, "v1.4.0"),
        ("git-sha", {"SOURCE_REVISION": REVISION}, "git-0f0f0f0f0f0f"),
    ],
)
def test_a_tag_that_names_another_image_ends_the_build_before_it_costs(
    machine, strategy, environment, tag
):
    """The registry would refuse it after an hour; `latest` alone may move."""
    machine.has(**{tag: OTHER})
    build = machine.run(TAG_STRATEGY=strategy, **environment)
    assert build.phases == {"pre_build": 1}
    assert f"{tag} names another image already" in build.err
    assert "raise the version in pyproject.toml" in build.err
    assert build.did("docker") == []


def test_latest_moves_to_the_newest_image(machine):
    """It is excluded from immutability."""
    machine.has(latest=OTHER)
    assert machine.run(TAG_STRATEGY="latest").succeeded
    assert machine.tags() == {TAG: DIGEST, "latest": DIGEST}


def test_what_exists_gets_its_new_tag_without_a_build(machine):
    """A version is given to the image that was tested, byte for byte."""
    machine.has(**{TAG: DIGEST})
    known = {"RECORDED_DIGEST": DIGEST, "TAG_STRATEGY": "semantic", "PROJECT_VERSION": "2.0.0"}
    build = machine.run(**known)
    assert build.succeeded
    assert build.did("docker") == []
    assert machine.tags() == {TAG: DIGEST, "v2.0.0": DIGEST}
    (read,) = [each for each in build.commands("aws") if each[1] == "batch-get-image"]
    assert f"imageDigest={DIGEST}" in read
    assert machine.run(**known).succeeded


@pytest.mark.parametrize("strategy", ["semantic", "git-sha"])
def test_a_strategy_without_its_value_says_where_it_comes_from(machine, strategy):
    """The console starts builds without it."""
    build = machine.run(TAG_STRATEGY=strategy)
    assert build.phases == {"pre_build": 1}
    assert "run meks build" in build.err
