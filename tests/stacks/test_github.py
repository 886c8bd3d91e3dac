"""Images from GitHub: the connection and nothing else, and builds for pushes to one branch."""

import json
import re

import pytest

from tests.variations import CONNECTION, VARIATIONS


@pytest.fixture
def images(changed):
    """Return the Images template of a cluster that builds from GitHub."""
    return changed(VARIATIONS["github"]).template("Images")


def test_source_is_the_branch_through_the_connection(images):
    """No token stands anywhere."""
    for project in images.properties("AWS::CodeBuild::Project"):
        assert project["SourceVersion"] == "release/1.x"
        source = project["Source"]
        assert source["Type"] == "GITHUB"
        assert source["Location"] == "https://github.com/example/megatron-eks.git"
        assert "python3 assets/codebuild/build_image.py check" in source["BuildSpec"]
        assert source["Auth"] == {"Type": "CODECONNECTIONS", "Resource": CONNECTION}


def test_builds_may_use_that_connection_and_read_no_bucket(images):
    """Both prefixes: AWS renamed the service, and older connections keep the name."""
    for role in images.properties("AWS::IAM::Role"):
        statements = role["Policies"][0]["PolicyDocument"]["Statement"]
        [access] = [each for each in statements if each["Resource"] == [CONNECTION]]
        assert {"codeconnections:UseConnection", "codestar-connections:UseConnection"} <= set(
            access["Action"]
        )
        assert "s3:" not in json.dumps(statements)


def test_the_connection_opens_this_repository_alone(images):
    """Code of any commit runs with the role; a connection may reach all of an organisation."""
    for role in images.properties("AWS::IAM::Role"):
        for statement in role["Policies"][0]["PolicyDocument"]["Statement"]:
            if any("connections:" in action for action in statement["Action"]):
                assert statement["Condition"] == {
                    "StringEqualsIfExists": {
                        "codeconnections:FullRepositoryId": "example/megatron-eks",
                        "codestar-connections:FullRepositoryId": "example/megatron-eks",
                    }
                }


def test_pushes_to_the_branch_build_and_others_do_not(images):
    """The branch's name is a pattern: a dot in it must not match any sign."""
    for project in images.properties("AWS::CodeBuild::Project"):
        assert project["Triggers"]["Webhook"] is True
        [group] = project["Triggers"]["FilterGroups"]
        filters = {item["Type"]: item["Pattern"] for item in group}
        assert filters["EVENT"] == "PUSH"
        assert re.search(filters["HEAD_REF"], "refs/heads/release/1.x")
        assert not re.search(filters["HEAD_REF"], "refs/heads/release/1ax")
        (name,) = [
            each["Value"]
            for each in project["Environment"]["EnvironmentVariables"]
            if each["Name"] == "IMAGE_NAME"
        ]
        other = {"megatron": "fsdp", "fsdp": "megatron"}[name]
        facts = ("megatron_eks/catalog/models.py", "megatron_eks/catalog/models.txt")
        ours = ("megatron_eks/programs/fetch/hub.py", *facts)
        for file in (f"assets/images/{name}/Dockerfile", "assets/images/gate.py", *ours):
            assert re.search(filters["FILE_PATH"], file)
        more = ("megatron_eks/catalog/prices.txt", "megatron_eks/catalog/gpus.py.txt")
        for file in (f"assets/images/{other}/Dockerfile", "assets/notes.md", *more):
            assert not re.search(filters["FILE_PATH"], file)


def test_builds_know_the_branch_whose_pushes_start_them(images, changed):
    """Without a webhook no variable excuses a commit that nobody has deployed."""

    def branches(template):
        return [
            each["Value"]
            for project in template.properties("AWS::CodeBuild::Project")
            for each in project["Environment"]["EnvironmentVariables"]
            if each["Name"] == "WEBHOOK_BRANCH"
        ]

    def by_hand(cluster):
        VARIATIONS["github"](cluster)
        del cluster["images"]["source"]["webhook"]

    assert branches(images) == ["release/1.x"] * 2
    without = changed(by_hand).template("Images")
    assert branches(without) == []
    # It needs rights on the repository that many have not.
    assert "Triggers" not in str(without.properties("AWS::CodeBuild::Project"))


def test_a_prefix_keeps_two_clusters_repositories_apart(images):
    """Their names are an account's and region's own."""
    names = {repo["RepositoryName"] for repo in images.properties("AWS::ECR::Repository")}
    assert names == {"staging-megatron-training", "staging-fsdp"}
