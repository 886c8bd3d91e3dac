"""Where CodeBuild finds what an image is made of: an asset of the CDK, or a branch on GitHub."""

import re
from pathlib import PurePosixPath

from aws_cdk import aws_codebuild as codebuild

from megatron_eks.build_context import context_paths
from megatron_eks.config.images import GithubSource
from megatron_eks.plan.cluster.images import buildspec
from megatron_eks.stacks.policies import Statement, partition, statement


def source(
    github: GithubSource | None, asset: str, program: str
) -> codebuild.CfnProject.SourceProperty:
    """Say where the source is, and which program makes an image of it."""
    if github is None:
        return codebuild.CfnProject.SourceProperty(
            type="S3", location=asset, build_spec=buildspec(program)
        )
    return codebuild.CfnProject.SourceProperty(
        type="GITHUB",
        location=github.url,
        git_clone_depth=1,
        build_spec=buildspec(program),
        # The role needs the connection before the webhook is made; it has it from the start,
        # because its permissions are part of it (aws-cdk#31726).
        auth=codebuild.CfnProject.SourceAuthProperty(
            type="CODECONNECTIONS", resource=github.connection_arn
        ),
    )


def triggers(
    github: GithubSource | None, image: str
) -> codebuild.CfnProject.ProjectTriggersProperty | None:
    """Build on pushes to the branch that change what the image is made of."""
    if github is None or not github.webhook:
        return None
    kind = codebuild.CfnProject.WebhookFilterProperty
    branch = re.escape(github.branch)
    paths = "|".join(
        re.escape(path).replace(r"\*", "[^/]+") + ("$" if PurePosixPath(path).suffix else "/")
        for path in context_paths(image)
    )
    return codebuild.CfnProject.ProjectTriggersProperty(
        webhook=True,
        filter_groups=[
            [
                kind(type="EVENT", pattern="PUSH"),
                kind(type="HEAD_REF", pattern=f"^refs/heads/{branch}$"),
                kind(type="FILE_PATH", pattern=f"^({paths})"),
            ]
        ],
    )


def source_access(github: GithubSource | None, asset: str) -> Statement:
    """Let the build read its source, and nothing beside it."""
    if github is not None:
        # Connections that are older than the service's new name have, and need, the old prefix.
        services = ("codeconnections", "codestar-connections")
        return statement(
            [
                f"{service}:{action}"
                for service in services
                for action in ("GetConnection", "GetConnectionToken", "UseConnection")
            ],
            [github.connection_arn],
            # Whatever names a repository must name this one. AWS's services also look at the
            # connection itself, without a repository to judge (Developer Tools console User
            # Guide, "Using a connection"; cloudposse/terraform-aws-ecs-codepipeline#75).
            condition={
                "StringEqualsIfExists": {
                    f"{service}:FullRepositoryId": github.repository for service in services
                }
            },
        )
    return statement(
        ["s3:GetObject", "s3:GetObjectVersion"],
        [f"arn:{partition()}:s3:::{asset}"],
    )
