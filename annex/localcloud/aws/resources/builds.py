"""Images: repositories of ECR and projects of CodeBuild."""

from collections.abc import Mapping
from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import Context, Handler
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value

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

    def create(self, context: Context, properties: Object) -> str:
        """Make the repository."""
        given = {"RepositoryName": context.new_name(255).lower(), **properties}
        return super().create(context, {**given, **_exclusions(given)})

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change which tags can move, scanning, and what expires."""
        ecr = context.clients("ecr")
        super().update(context, physical_id, old, new)
        if any(new.get(key) != old.get(key) for key in ("ImageTagMutability", _EXCLUSIONS)):
            ecr.put_image_tag_mutability(
                repositoryName=physical_id,
                imageTagMutability=new.get("ImageTagMutability", "MUTABLE"),
                **_exclusions(new),
            )
        scanning = new.get("ImageScanningConfiguration", {})
        if scanning != old.get("ImageScanningConfiguration", {}):
            ecr.put_image_scanning_configuration(
                repositoryName=physical_id,
                imageScanningConfiguration={"scanOnPush": scanning.get("ScanOnPush", False)},
            )

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

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Set what expires."""
        ecr, name = context.clients("ecr"), physical_id
        before, after = (
            one.get("LifecyclePolicy", {}).get("LifecyclePolicyText") for one in (old, new)
        )
        if after and after != before:
            ecr.put_lifecycle_policy(repositoryName=name, lifecyclePolicyText=after)
        elif before and not after:
            ecr.delete_lifecycle_policy(repositoryName=name)


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

    def create(self, context: Context, properties: Object) -> str:
        """Make the project."""
        name = super().create(context, properties)
        if properties.get("Triggers", {}).get("Webhook"):
            filters = properties["Triggers"].get("FilterGroups", [])
            context.clients("codebuild").create_webhook(
                projectName=name,
                filterGroups=[
                    [
                        {key[0].lower() + key[1:]: value for key, value in each.items()}
                        for each in group
                    ]
                    for group in filters
                ],
            )
        return name

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return the ARN."""
        del properties
        return {"Arn": f"arn:aws:codebuild:{context.region}:{ACCOUNT}:project/{physical_id}"}


HANDLERS: tuple[Handler, ...] = (Repository(), Project())
