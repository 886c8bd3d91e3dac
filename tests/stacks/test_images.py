"""The Images stack: repositories that forget nothing in use, and builds with narrow rights."""

import json
from dataclasses import replace

import pytest

from megatron_eks.catalog.pins import BUILD_ARGUMENTS
from megatron_eks.plan.cluster.images import PROGRAM
from tests.stacks.synthesis import ROOT, Assembly, app_of

NAMES = {"Megatron": "megatron", "Fsdp": "fsdp"}


def find(template, kind, prefix):
    """Return logical id and properties of an image's resource of a type."""
    [(name, body)] = [
        (name, body) for name, body in template.of_type(kind).items() if name.startswith(prefix)
    ]
    return name, body["Properties"]


def environment(project):
    """Return a build project's variables."""
    variables = project["Environment"]["EnvironmentVariables"]
    return {variable["Name"]: variable["Value"] for variable in variables}


def test_level_and_tag_of_the_file_reach_the_build(changed):
    """Each image has its own."""
    wanted = {"test_level": "full", "tag_strategy": "latest"}
    images = changed(lambda cluster: cluster.update(images={"fsdp": wanted})).template("Images")
    projects = {title: find(images, "AWS::CodeBuild::Project", title)[1] for title in NAMES}
    found = {title: environment(project) for title, project in projects.items()}
    keys = ("TEST_LEVEL", "TAG_STRATEGY")
    assert [found["Fsdp"][key] for key in keys] == ["full", "latest"]
    assert [found["Megatron"][key] for key in keys] == ["standard", "auto"]


def test_build_arguments_of_the_file_reach_the_build(changed):
    """As JSON, in an order that does not depend on the file's."""
    arguments = {"B": "2", "A": "a b"}
    images = changed(
        lambda cluster: cluster.update(images={"fsdp": {"build_args": arguments}})
    ).template("Images")
    _, fsdp = find(images, "AWS::CodeBuild::Project", "Fsdp")
    _, megatron = find(images, "AWS::CodeBuild::Project", "Megatron")
    pinned = json.dumps({**BUILD_ARGUMENTS["fsdp"], **arguments}, sort_keys=True)
    assert environment(fsdp)["BUILD_ARGS"] == pinned
    assert json.loads(environment(megatron)["BUILD_ARGS"]) == BUILD_ARGUMENTS["megatron"]


@pytest.mark.parametrize("title", NAMES)
def test_the_source_is_this_checkout(assembly, images, title):
    """Uploaded by `cdk deploy` to the bootstrap bucket; no default needs GitHub."""
    _, project = find(images, "AWS::CodeBuild::Project", title)
    source = project["Source"]
    assert source["Type"] == "S3"
    bucket, key = source["Location"]["Fn::Join"][1]
    assert bucket == {"Fn::Sub": "cdk-hnb659fds-assets-${AWS::AccountId}-us-east-2"}
    published = json.loads((assembly.directory / "techpulse-Images.assets.json").read_text())
    [asset] = [
        file
        for file in published["files"].values()
        for destination in file["destinations"].values()
        if f"/{destination['objectKey']}" == key
    ]
    assert asset["source"]["packaging"] == "zip"
    staged = assembly.directory / asset["source"]["path"]
    assert (staged / PROGRAM).is_file()
    assert not (staged / PROGRAM).with_suffix(".pyc").exists()


@pytest.mark.parametrize("title", NAMES)
def test_the_phases_run_the_program_that_the_source_brings(images, title):
    """A wrong path fails only after the source was uploaded and a machine rented."""
    _, project = find(images, "AWS::CodeBuild::Project", title)
    spec = json.loads(project["Source"]["BuildSpec"])
    commands = [command for phase in spec["phases"].values() for command in phase["commands"]]
    steps = [command.removeprefix(f"python3 {PROGRAM} ") for command in commands[:-1]]
    assert steps == ["check", "login", "build", "test", "push"]
    assert commands[-1] == f'export IMAGE_DIGEST="$(python3 {PROGRAM} digest)"'
    assert (ROOT / PROGRAM).is_file()


def test_a_new_tag_is_a_new_source_and_touches_no_other_image(sources, tmp_path, assembly):
    """The tag is the source's hash: CDK uploads exactly when it changes."""
    megatron, fsdp = assembly.plan.images
    plan = replace(assembly.plan, images=(megatron, replace(fsdp, tag="89ab0123")))
    app_of(plan, sources, tmp_path).synth()
    before, after = assembly.template("Images"), Assembly(plan, tmp_path).template("Images")
    differing = {name for name, body in before.resources.items() if after.resources[name] != body}
    assert {name[:7] for name in differing} == {"FsdpRol", "FsdpPro"}


def test_an_interrupted_copy_of_a_source_is_completed(sources, tmp_path, assembly):
    """What has the name of its content is whole, and is not copied again."""
    name = f"asset.{assembly.plan.images[0].tag}"
    cut = tmp_path / f"{name}.part" / PROGRAM
    cut.parent.mkdir(parents=True)
    cut.write_text("pri")
    for _ in range(2):
        app_of(assembly.plan, sources, tmp_path).synth()
        assert (tmp_path / name / PROGRAM).read_text() == (sources / PROGRAM).read_text()
    assert not cut.exists()
