"""The Images stack: repositories that forget nothing in use, and builds with narrow rights."""

import json
from dataclasses import replace

import pytest

from tests.stacks.synthesis import ROOT, TAGS, Assembly, app_of

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


def test_repositories_have_the_names_of_the_source_documents(images):
    """Their commands name them."""
    names = {
        repository["RepositoryName"] for repository in images.properties("AWS::ECR::Repository")
    }
    assert names == {"megatron-training", "fsdp"}


@pytest.mark.parametrize("title", NAMES)
def test_a_tag_means_one_image_for_ever(images, title):
    """Only the two tags that builds move are exempt, and jobs use neither."""
    _, repository = find(images, "AWS::ECR::Repository", title)
    assert repository["ImageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    moving = {
        exclusion["ImageTagMutabilityExclusionFilterValue"]
        for exclusion in repository["ImageTagMutabilityExclusionFilters"]
    }
    assert moving == {"latest", "cache"}


@pytest.mark.parametrize("title", NAMES)
def test_repositories_scan_and_encrypt(images, title):
    """Known flaws show at the push, and the key is the stack's."""
    _, repository = find(images, "AWS::ECR::Repository", title)
    assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
    assert repository["EncryptionConfiguration"] == {
        "EncryptionType": "KMS",
        "KmsKey": {"Fn::GetAtt": ["Key", "Arn"]},
    }


@pytest.mark.parametrize("title", NAMES)
def test_no_tagged_image_ever_expires(images, title):
    """A job that restarts after months pulls its image again."""
    _, repository = find(images, "AWS::ECR::Repository", title)
    policy = json.loads(repository["LifecyclePolicy"]["LifecyclePolicyText"])
    assert [rule["selection"]["tagStatus"] for rule in policy["rules"]] == ["untagged"]


@pytest.mark.parametrize(("title", "name"), NAMES.items())
def test_the_build_gets_what_the_buildspec_reads(images, title, name):
    """Names and number of the variables are the contract with the buildspec."""
    _, project = find(images, "AWS::CodeBuild::Project", title)
    repository, _ = find(images, "AWS::ECR::Repository", title)
    assert environment(project) == {
        "IMAGE_NAME": name,
        "REPOSITORY_URI": {"Fn::GetAtt": [repository, "RepositoryUri"]},
        "IMAGE_TAG": TAGS[name],
        "BUILD_ARGS": "{}",
    }


def test_build_arguments_of_the_file_reach_the_build(changed):
    """As JSON, in an order that does not depend on the file's."""
    arguments = {"B": "2", "A": "a b"}
    images = changed(
        lambda cluster: cluster.update(images={"fsdp": {"build_args": arguments}})
    ).template("Images")
    _, fsdp = find(images, "AWS::CodeBuild::Project", "Fsdp")
    _, megatron = find(images, "AWS::CodeBuild::Project", "Megatron")
    assert environment(fsdp)["BUILD_ARGS"] == '{"A": "a b", "B": "2"}'
    assert environment(megatron)["BUILD_ARGS"] == "{}"


@pytest.mark.parametrize("title", NAMES)
def test_the_build_machine_fits_an_image_of_tens_of_gigabytes(images, title):
    """And runs Docker, for as long as such an image takes."""
    _, project = find(images, "AWS::CodeBuild::Project", title)
    assert project["Environment"]["ComputeType"] == "BUILD_GENERAL1_LARGE"
    assert project["Environment"]["PrivilegedMode"] is True
    assert project["TimeoutInMinutes"] == 120


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
    assert (staged / source["BuildSpec"]).is_file()
    assert not (staged / "left_over.pyc").exists()


def test_the_buildspec_stands_where_the_projects_expect_it(images):
    """A wrong path fails only after the source was uploaded and a machine rented."""
    for project in images.properties("AWS::CodeBuild::Project"):
        assert (ROOT / "assets" / project["Source"]["BuildSpec"]).is_file()


def test_a_new_tag_is_a_new_source_and_touches_no_other_image(sources, tmp_path, assembly):
    """The tag is the source's hash: CDK uploads exactly when it changes."""
    megatron, fsdp = assembly.plan.images
    plan = replace(assembly.plan, images=(megatron, replace(fsdp, tag="89ab0123")))
    app_of(plan, sources, tmp_path).synth()
    before, after = assembly.template("Images"), Assembly(plan, tmp_path).template("Images")
    differing = {name for name, body in before.resources.items() if after.resources[name] != body}
    assert {name[:7] for name in differing} == {"FsdpRol", "FsdpPro"}


@pytest.mark.parametrize("title", NAMES)
def test_a_build_may_do_exactly_this(images, title):
    """One object, one repository, one log group, one key; `*` only where AWS knows no narrower."""
    name, role = find(images, "AWS::IAM::Role", title)
    repository, _ = find(images, "AWS::ECR::Repository", title)
    logs, _ = find(images, "AWS::Logs::LogGroup", title)
    _, project = find(images, "AWS::CodeBuild::Project", title)
    assert project["ServiceRole"] == {"Fn::GetAtt": [name, "Arn"]}
    [policy] = role["Policies"]
    allowed = {
        action: statement["Resource"]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in statement["Action"]
    }
    [source] = allowed.pop("s3:GetObject")
    assert allowed.pop("s3:GetObjectVersion") == [source]
    location = project["Source"]["Location"]["Fn::Join"][1]
    assert source["Fn::Join"][1][-2:] == location
    assert allowed.pop("ecr:GetAuthorizationToken") == ["*"]
    for action, resources in allowed.items():
        service = action.split(":")[0]
        owner = {"ecr": repository, "logs": logs, "kms": "Key"}[service]
        assert resources == [{"Fn::GetAtt": [owner, "Arn"]}], action
    assert {"ecr:PutImage", "ecr:BatchGetImage", "logs:PutLogEvents"} <= set(allowed)
    assert "ManagedPolicyArns" not in role


def test_outputs_are_the_keys_that_charts_and_builds_read(images):
    """The image by the tag of its source: a job never runs a moving tag."""
    outputs = {name: output["Value"] for name, output in images.body["Outputs"].items()}
    projects = {
        f"{title}BuildProject": {"Ref": find(images, "AWS::CodeBuild::Project", title)[0]}
        for title in NAMES
    }
    uris = {
        f"{title}Image": {
            "Fn::Join": [
                "",
                [
                    {
                        "Fn::GetAtt": [
                            find(images, "AWS::ECR::Repository", title)[0],
                            "RepositoryUri",
                        ]
                    },
                    f":{TAGS[name]}",
                ],
            ]
        }
        for title, name in NAMES.items()
    }
    assert outputs == projects | uris
