"""Repositories of images, and the builds that push to them."""

import json

import pytest

from megatron_eks.guards.check import check_templates
from tests.guards.slips import ABSENT, Json, in_template, templates

REPOSITORY, PROJECT = "ECR::Repository", "CodeBuild::Project"
RULES, SPEC = "LifecyclePolicy LifecyclePolicyText", "Source BuildSpec"
FILTERS, VARIABLES = "ImageTagMutabilityExclusionFilters", "Environment EnvironmentVariables"
BUILD, EXPIRES = "BUILD_COMPUTE", "EXPIRES"


def lifecycle(**selection: object) -> str:
    """Return a lifecycle policy of one rule."""
    chosen = {"countType": "sinceImagePushed", "countUnit": "days", "countNumber": 30, **selection}
    rule = {"rulePriority": 1, "selection": chosen, "action": {"type": "expire"}}
    return json.dumps({"rules": [rule]})


@pytest.mark.parametrize(
    ("resource", "path", "value", "code"),
    [
        (REPOSITORY, "ImageTagMutability", "MUTABLE", "ENCRYPTION"),
        (REPOSITORY, FILTERS, ABSENT, "ENCRYPTION"),
        (REPOSITORY, f"{FILTERS} 0 {FILTERS[:-1]}Value", "*", "ENCRYPTION"),
        (REPOSITORY, "DeletionPolicy", "Delete", EXPIRES),
        (REPOSITORY, "ImageScanningConfiguration", ABSENT, "ENCRYPTION"),
        (REPOSITORY, RULES, ABSENT, EXPIRES),
        (REPOSITORY, RULES, lifecycle(tagStatus="any"), EXPIRES),
        (REPOSITORY, RULES, lifecycle(tagStatus="tagged", tagPatternList=["*"]), EXPIRES),
        (PROJECT, "Environment PrivilegedMode", ABSENT, BUILD),
        (PROJECT, "Environment Image", "aws/codebuild/amazonlinux-aarch64-standard:3.0", BUILD),
        (PROJECT, "TimeoutInMinutes", 30, BUILD),
        (PROJECT, f"{VARIABLES} 2", ABSENT, BUILD),
        (PROJECT, f"{VARIABLES} 2 Value", "0123456789abcdef0123", BUILD),
        (PROJECT, f"{VARIABLES} 4 Value", "none", BUILD),
        (PROJECT, SPEC, lambda text: text.replace(" test", " tests"), BUILD),
        (PROJECT, SPEC, "version: 0.2\nphases: {}\n", BUILD),
    ],
)
def test_mistakes_in_images(resource, path, value, code):
    """Each is found under its code."""
    assert code in in_template(resource, path, value)


@pytest.mark.parametrize(
    ("resource", "path", "value"),
    [
        (REPOSITORY, RULES, lifecycle(tagStatus="untagged", countNumber=7)),
        (REPOSITORY, RULES, lifecycle(tagStatus="tagged", tagPrefixList=["dev-"])),
        (PROJECT, "Environment ComputeType", "BUILD_GENERAL1_2XLARGE"),
        (PROJECT, "TimeoutInMinutes", 240),
        (PROJECT, SPEC, "buildspec.yml"),
    ],
)
def test_other_images_that_work(resource, path, value):
    """Nothing is found in them."""
    assert in_template(resource, path, value) == set()


@pytest.mark.parametrize("name", ["MegatronImage", "MegatronBuildProject"])
def test_outputs_name_the_image_and_its_build(name):
    """A misspelt one is found."""
    images = templates()["Images"]
    outputs = {key.replace(name, f"{name}s"): each for key, each in images["Outputs"].items()}
    found = check_templates({"Images": {**images, "Outputs": outputs}})
    assert [each.found.split()[2] for each in found] == [name]


BRANCH = {"Type": "HEAD_REF", "Pattern": "^refs/heads/main$"}
PUSH = {"Type": "EVENT", "Pattern": "PUSH"}
OPENED = {"Type": "EVENT", "Pattern": "PULL_REQUEST_CREATED"}


@pytest.mark.parametrize(
    ("triggers", "count"),
    [
        ({"Webhook": True, "FilterGroups": [[PUSH, BRANCH]]}, 0),
        ({"Webhook": False, "FilterGroups": [[PUSH, BRANCH]]}, 1),
        ({"Webhook": True, "FilterGroups": [[OPENED, BRANCH]]}, 1),
        ({"Webhook": True, "FilterGroups": [[PUSH]]}, 1),
        ({"Webhook": True}, 1),
    ],
)
def test_only_pushes_to_the_branch_are_built(triggers, count):
    """Not pull requests, not other branches."""
    source = {"Location": "https://github.com/example/megatron.git", "BuildSpec": "build_image.py"}
    project = {"Triggers": triggers, "Source": source}
    resources: Json = {"P": {"Type": "AWS::CodeBuild::Project", "Properties": project}}
    found = check_templates({"Images": {"Resources": resources}})
    assert len([each for each in found if "Triggers" in each.path]) == count


def test_a_project_that_builds_no_image():
    """Another team's project may be as small as they like."""
    project = {"Environment": {"ComputeType": "BUILD_GENERAL1_SMALL"}, "Artifacts": {"Type": "S3"}}
    resources: Json = {"P": {"Type": "AWS::CodeBuild::Project", "Properties": project}}
    assert check_templates({"Images": {"Resources": resources}}) == []
