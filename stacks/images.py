"""The Images stack: a repository for each container image, and the project that builds it."""

import json
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from megatron_eks.build_context import stage
from megatron_eks.catalog.pins import CODEBUILD_IMAGE
from megatron_eks.own_images import stage_own
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cluster.images import REPORT_GROUP, ImagePlan
from megatron_eks.stacks.base import encryption_key, log_group
from megatron_eks.stacks.image_source import source, source_access, triggers
from megatron_eks.stacks.policies import (
    account,
    acknowledge,
    partition,
    role,
    same_account,
    statement,
)

# The tag that a build moves; jobs name images by digest.
_MOVING_TAG = "latest"

# A tagged image may be what a job runs, however old it is; one without a tag was replaced under a
# moving tag.
_LIFECYCLE = {
    "rules": [
        {
            "rulePriority": 1,
            "description": "Expire what no tag names any more",
            "selection": {
                "tagStatus": "untagged",
                "countType": "sinceImagePushed",
                "countUnit": "days",
                "countNumber": 14,
            },
            "action": {"type": "expire"},
        }
    ]
}

_PULL_AND_PUSH = [
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:DescribeImages",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
]


_PULL = [
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
]

_REPORT = [
    "codebuild:BatchPutTestCases",
    "codebuild:CreateReport",
    "codebuild:CreateReportGroup",
    "codebuild:UpdateReport",
]


def _logs_of(plan: ClusterPlan) -> str:
    return f"/megatron-eks/{plan.name}/build"


class PlannedImages(Construct):
    """The images of a cluster, whose key they share."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        plan: ClusterPlan,
        checkout: Path,
        folder: Path = Path(),
    ) -> None:
        """Make them; the folders of images of the user's are below that of the cluster file."""
        super().__init__(scope, construct_id)
        self.builds: dict[str, ImageBuild] = {}
        """Repository and project of each image, by its name."""
        key = encryption_key(
            self,
            "Key",
            region=plan.region,
            description=f"Container images of {plan.name}",
            log_groups=f"{_logs_of(plan)}/*",
            removal=cdk.RemovalPolicy.RETAIN,
        )
        for image in plan.images:
            base = self.builds[image.base].repository_arn if image.base else None
            build = ImageBuild(
                self, plan=plan, image=image, base=base, checkout=checkout, folder=folder, key=key
            )
            self.builds[image.name] = build
            for output, value in zip(
                image.keys, (build.image_uri, build.project_name), strict=True
            ):
                cdk.CfnOutput(self, output, value=value)


class ImageBuild(Construct):
    """One repository, and the CodeBuild project that alone pushes to it."""

    def __init__(
        self,
        scope: Construct,
        *,
        plan: ClusterPlan,
        image: ImagePlan,
        base: str | None,
        checkout: Path,
        folder: Path,
        key: str,
    ) -> None:
        super().__init__(scope, image.title)
        self._region = plan.region
        self._image, self._base, self._key = image, base, key
        # Where the user's folders are, a fork of this project does not say.
        self._github = None if image.own else plan.image_source
        self._repository = self._make_repository()
        self.repository_arn = self._repository.attr_arn
        """What builds that start from the image may pull of."""
        self._asset = "" if self._github else self._make_asset(checkout, folder)
        self._logs = log_group(self, "Logs", name=f"{_logs_of(plan)}/{image.name}", key=key)
        name = f"{plan.name}-{image.name}"
        self.project_name = self._make_project(name, self._make_role(name)).ref
        """What `aws codebuild start-build` takes."""
        self.image_uri = f"{self._repository.attr_repository_uri}:{image.tag}"
        """The image that the project builds from this source."""

    def _make_repository(self) -> ecr.CfnRepository:
        repository = ecr.CfnRepository(
            self,
            "Repository",
            repository_name=self._image.repository,
            image_tag_mutability="IMMUTABLE_WITH_EXCLUSION",
            image_tag_mutability_exclusion_filters=[
                ecr.CfnRepository.ImageTagMutabilityExclusionFilterProperty(
                    image_tag_mutability_exclusion_filter_type="WILDCARD",
                    image_tag_mutability_exclusion_filter_value=_MOVING_TAG,
                )
            ],
            image_scanning_configuration=ecr.CfnRepository.ImageScanningConfigurationProperty(
                scan_on_push=True
            ),
            encryption_configuration=ecr.CfnRepository.EncryptionConfigurationProperty(
                encryption_type="KMS", kms_key=self._key
            ),
            lifecycle_policy=ecr.CfnRepository.LifecyclePolicyProperty(
                lifecycle_policy_text=json.dumps(_LIFECYCLE)
            ),
        )
        repository.apply_removal_policy(cdk.RemovalPolicy.RETAIN)
        return repository

    def _make_asset(self, checkout: Path, cluster: Path) -> str:
        """Have `cdk deploy` upload the build context under the image's tag.

        This is what CDK's S3 asset does, less the bucket object that it makes to grant access.
        """
        app, folder = cdk.Stage.of(self), f"asset.{self._image.tag}"
        assert app is not None  # noqa: S101 -- every stack is in one
        target = Path(app.asset_outdir, folder)
        # Its name says what is in it, and it has its name when it is whole.
        if not target.is_dir():
            part = target.with_name(f"{folder}.part")
            if self._image.own is None:
                stage(checkout, self._image.name, part)
            else:
                stage_own(self._image.own, cluster, checkout, part)
            part.rename(target)
        asset = cdk.Stack.of(self).synthesizer.add_file_asset(
            source_hash=self._image.tag,
            packaging=cdk.FileAssetPackaging.ZIP_DIRECTORY,
            file_name=folder,
            display_name=f"Source of the {self._image.name} image",
        )
        return f"{asset.bucket_name}/{asset.object_key}"

    def _make_role(self, project_name: str) -> str:
        reports = f"report-group/{project_name}-{REPORT_GROUP}"
        made = role(
            self,
            "Role",
            description=f"Builds {self._image.repository}",
            service="codebuild.amazonaws.com",
            condition=same_account(),
            statements=[
                source_access(self._github, self._asset),
                # The token is the account's; what it opens, the next statement says.
                statement(["ecr:GetAuthorizationToken"], ["*"]),
                statement(_PULL_AND_PUSH, [self._repository.attr_arn]),
                *([statement(_PULL, [self._base])] if self._base else []),
                statement(["logs:CreateLogStream", "logs:PutLogEvents"], [self._logs.attr_arn]),
                statement(
                    _REPORT,
                    [f"arn:{partition()}:codebuild:{self._region}:{account()}:{reports}"],
                ),
                # CodeBuild encrypts what it keeps of a build with the project's key.
                statement(["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"], [self._key]),
            ],
        )
        acknowledge(
            made,
            "ecr:GetAuthorizationToken knows no resource but *",
            "AwsSolutions-IAM5[Resource::*]",
        )
        return made.attr_arn

    def _make_project(self, name: str, service_role: str) -> codebuild.CfnProject:
        environment = {
            **self._image.environment(self._repository.attr_repository_uri),
            # The image lists its layers, with which a later build may begin on whatever machine.
            "CACHE": "registry",
        }
        if self._github is not None and self._github.webhook:
            environment["WEBHOOK_BRANCH"] = self._github.branch
        return codebuild.CfnProject(
            self,
            "Project",
            # No property but its name replaces a project, so a name of ours blocks no update.
            name=name,
            description=f"Builds {self._image.repository} and pushes it",
            service_role=service_role,
            encryption_key=self._key,
            # A first build pulls, tests and pushes everything; CodeBuild takes up to 2160.
            timeout_in_minutes=240,
            artifacts=codebuild.CfnProject.ArtifactsProperty(type="NO_ARTIFACTS"),
            source=source(self._github, self._asset, self._image.program),
            source_version=self._github.branch if self._github else None,
            triggers=triggers(self._github, self._image.name),
            environment=codebuild.CfnProject.EnvironmentProperty(
                type="LINUX_CONTAINER",
                compute_type=self._image.machine,
                image=CODEBUILD_IMAGE,
                # `docker build` needs it.
                privileged_mode=True,
                environment_variables=[
                    codebuild.CfnProject.EnvironmentVariableProperty(name=variable, value=value)
                    for variable, value in environment.items()
                ],
            ),
            logs_config=codebuild.CfnProject.LogsConfigProperty(
                cloud_watch_logs=codebuild.CfnProject.CloudWatchLogsConfigProperty(
                    status="ENABLED", group_name=self._logs.ref
                )
            ),
        )
