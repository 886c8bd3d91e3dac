"""Images: repositories of ECR and projects of CodeBuild."""

from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import Context, Handler, Setting, call
from megatron_eks.localcloud.aws.values import Object

_EXCLUSIONS = "ImageTagMutabilityExclusionFilters"


class Repository(Handler):
    """A repository; its physical id is its name."""

    kind = "AWS::ECR::Repository"
    service = "ecr"
    creates = ("CreateRepository", "")
    identity = ("RepositoryName",)
    tagged = ("resourceArn", "Arn")
    describes = ("DescribeRepositories", "repositoryNames")
    answers: ClassVar = {
        "Arn": "repositories.0.repositoryArn",
        "RepositoryUri": "repositories.0.repositoryUri",
    }
    owner = "repositoryName"
    settings: ClassVar = {
        "LifecyclePolicy": Setting("PutLifecyclePolicy", "DeleteLifecyclePolicy", lambda text: text)
    }
    changes: ClassVar = {"ImageScanningConfiguration": Setting("PutImageScanningConfiguration")}

    def create(self, context: Context, properties: Object) -> str:
        """Make the repository."""
        given = {"RepositoryName": context.new_name(255).lower(), **properties}
        return super().create(context, {**given, **_exclusions(given)})

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the repository, if it is empty or may be emptied: `meks cleanup` says so."""
        context.clients("ecr").delete_repository(
            repositoryName=physical_id, force=properties.get("EmptyOnDelete", False)
        )

    def exists(self, context: Context, physical_id: str) -> bool:
        """Ask ECR."""
        ecr = context.clients("ecr")
        try:
            ecr.describe_repositories(repositoryNames=[physical_id])
        except ecr.exceptions.RepositoryNotFoundException:
            return False
        return True


def _exclusions(properties: Object) -> Object:
    filters = [
        {
            "filterType": each["ImageTagMutabilityExclusionFilterType"],
            "filter": each["ImageTagMutabilityExclusionFilterValue"],
        }
        for each in properties.get(_EXCLUSIONS, [])
    ]
    return {_EXCLUSIONS[0].lower() + _EXCLUSIONS[1:]: filters} if filters else {}


class Project(Handler):
    """A project of CodeBuild; its physical id is its name."""

    kind = "AWS::CodeBuild::Project"
    service = "codebuild"
    creates = ("CreateProject", "")
    identity = ("Name",)
    made_up = 255
    updates = ("UpdateProject", "Name")
    deletes = ("DeleteProject", "name")

    answers: ClassVar = {"Arn": "arn:aws:codebuild:{region}:{account}:project/{id}"}

    def create(self, context: Context, properties: Object) -> str:
        """Make the project."""
        name = super().create(context, properties)
        triggers = properties.get("Triggers", {})
        if triggers.get("Webhook"):
            call(context, "codebuild", "CreateWebhook", triggers, projectName=name)
        return name


HANDLERS: tuple[Handler, ...] = (Repository(), Project())
