"""Images: repositories of ECR and projects of CodeBuild."""

from collections.abc import Mapping
from typing import ClassVar

from megatron_eks.localcloud.aws.resources.handler import (
    RESOURCE,
    Context,
    Handler,
    call,
    change_tags,
)
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value

_EXCLUSIONS = "ImageTagMutabilityExclusionFilters"


class Repository(Handler):
    """A repository; its physical id is its name."""

    kind = "AWS::ECR::Repository"
    service = "ecr"
    describes = ("DescribeRepositories", "repositoryNames")
    answers: ClassVar = {
        "Arn": "repositories.0.repositoryArn",
        "RepositoryUri": "repositories.0.repositoryUri",
    }

    def create(self, context: Context, properties: Object) -> str:
        """Make the repository."""
        plain = {
            key: value
            for key, value in properties.items()
            if key not in ("LifecyclePolicy", "RepositoryPolicyText", _EXCLUSIONS)
        }
        plain.setdefault("RepositoryName", context.new_name(255).lower())
        call(context, "ecr", "CreateRepository", plain, **_exclusions(properties))
        name = str(plain["RepositoryName"])
        context.note(name)
        self._lifecycle(context, name, {}, properties)
        return name

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change which tags can move, scanning, and what expires."""
        ecr = context.clients("ecr")
        self._lifecycle(context, physical_id, old, new)
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
        arn = self.attributes(context, physical_id, new)["Arn"]
        change_tags(ecr, RESOURCE, {"resourceArn": arn}, old, new)

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

    @staticmethod
    def _lifecycle(context: Context, name: str, old: Object, new: Object) -> None:
        ecr = context.clients("ecr")
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
    return {"imageTagMutabilityExclusionFilters": filters} if filters else {}


class Project(Handler):
    """A project of CodeBuild; its physical id is its name."""

    kind = "AWS::CodeBuild::Project"
    service = "codebuild"
    deletes = ("DeleteProject", "name")

    def create(self, context: Context, properties: Object) -> str:
        """Make the project."""
        name = str(properties.get("Name") or context.new_name(255))
        plain = {**_without_triggers(properties), "Name": name}
        call(context, "codebuild", "CreateProject", plain)
        context.note(name)
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

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change the project."""
        del old
        plain = {**_without_triggers(new), "Name": physical_id}
        call(context, "codebuild", "UpdateProject", plain)

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return the ARN."""
        del properties
        return {"Arn": f"arn:aws:codebuild:{context.region}:{ACCOUNT}:project/{physical_id}"}


def _without_triggers(properties: Object) -> Object:
    return {key: value for key, value in properties.items() if key != "Triggers"}


HANDLERS: tuple[Handler, ...] = (Repository(), Project())
