"""The operations of CloudFormation's API."""

from typing import ClassVar
from urllib.parse import unquote, urlsplit

from moto.core.responses import ActionResult, BaseResponse, EmptyResult

from megatron_eks.localcloud.aws.clients import Clients
from megatron_eks.localcloud.aws.cloudformation.errors import ValidationError
from megatron_eks.localcloud.aws.cloudformation.region import Region, Regions
from megatron_eks.localcloud.aws.cloudformation.stacks import Request
from megatron_eks.localcloud.aws.values import Value


class CloudFormationApi(BaseResponse):
    """Answers requests; moto finds the method by the operation's name."""

    regions: ClassVar[Regions]
    """Set once, when the server starts."""

    def __init__(self) -> None:
        super().__init__(service_name="cloudformation")
        self.automated_parameter_parsing = True

    @property
    def _region(self) -> Region:
        return self.regions.region(self.region)

    @property
    def _clients(self) -> Clients:
        return self.regions.clients(self.region)

    def _get(self, name: str, default: Value = None) -> Value:
        return self.params.get(name, default)

    def create_change_set(self) -> ActionResult:
        """CreateChangeSet."""
        stack, change_set = self._region.create_change_set(
            self._get("ChangeSetName"),
            self._get("StackName"),
            self._get("ChangeSetType", "UPDATE"),
            self._request(),
        )
        return ActionResult({"Id": change_set.id, "StackId": stack.id})

    def describe_change_set(self) -> ActionResult:
        """DescribeChangeSet."""
        stack, change_set = self._region.find_change_set(
            self._get("ChangeSetName"), self._get("StackName")
        )
        return ActionResult(change_set.describe(stack))

    def execute_change_set(self) -> EmptyResult:
        """ExecuteChangeSet; it ends when the stack has reached its end."""
        self._region.execute_change_set(self._get("ChangeSetName"), self._get("StackName"))
        return EmptyResult()

    def delete_change_set(self) -> EmptyResult:
        """DeleteChangeSet."""
        self._region.delete_change_set(self._get("ChangeSetName"), self._get("StackName"))
        return EmptyResult()

    def list_change_sets(self) -> ActionResult:
        """ListChangeSets."""
        stack = self._region.find(self._get("StackName"))
        summaries = [each.summary(stack) for each in self._region.change_sets(stack)]
        return ActionResult({"Summaries": summaries})

    def delete_stack(self) -> EmptyResult:
        """DeleteStack."""
        self._region.delete(self._get("StackName"))
        return EmptyResult()

    def describe_stacks(self) -> ActionResult:
        """DescribeStacks."""
        name = self._get("StackName")
        found = [self._region.find(name, deleted=True)] if name else self._region.living()
        return ActionResult({"Stacks": [stack.describe() for stack in found]})

    def describe_stack_events(self) -> ActionResult:
        """DescribeStackEvents, the latest first."""
        stack = self._region.find(self._get("StackName"), deleted=True)
        return ActionResult({"StackEvents": list(reversed(stack.events))})

    def describe_events(self) -> ActionResult:
        """DescribeEvents: what a change set was refused for, which is told in its status here."""
        return ActionResult({"OperationEvents": []})

    def describe_stack_resources(self) -> ActionResult:
        """DescribeStackResources: of a stack, or of the one that a thing is in."""
        name, physical_id = self._get("StackName"), self._get("PhysicalResourceId")
        stacks = [self._region.find(name, deleted=True)] if name else self._region.living()
        if physical_id:
            stacks = [
                stack
                for stack in stacks
                if any(each.physical_id == physical_id for each in list(stack.resources.values()))
            ]
        if not stacks:
            raise ValidationError(f"Stack for {physical_id} does not exist")
        wanted = self._get("LogicalResourceId")
        found = [
            stack.describe_resource(each)
            for stack in stacks
            for each in list(stack.resources.values())
            if wanted in (None, each.name)
        ]
        return ActionResult({"StackResources": found})

    def list_stack_resources(self) -> ActionResult:
        """ListStackResources."""
        stack = self._region.find(self._get("StackName"), deleted=True)
        found = [stack.describe_resource(each) for each in list(stack.resources.values())]
        return ActionResult({"StackResourceSummaries": found})

    def get_template(self) -> ActionResult:
        """GetTemplate."""
        target = self._region.find(self._get("StackName"), deleted=True).target
        body = "{}" if target is None else target.body
        return ActionResult({"TemplateBody": body, "StagesAvailable": ["Original", "Processed"]})

    def _request(self) -> Request:
        tags = self._get("Tags")
        given = {
            each["ParameterKey"]: each["ParameterValue"]
            for each in self._get("Parameters") or []
            if not each.get("UsePreviousValue")
        }
        return Request(
            body=self._template_body(),
            parameters=given,
            tags=None if tags is None else {each["Key"]: each["Value"] for each in tags},
            import_existing=bool(self._get("ImportExistingResources", False)),  # noqa: FBT003 -- a default
        )

    def _template_body(self) -> str | None:
        body: str | None = self._get("TemplateBody")
        url = self._get("TemplateURL")
        if body is not None or url is None:
            return body
        place = urlsplit(url)
        bucket, key = _bucket_and_key(place.hostname or "", unquote(place.path))
        s3 = self._clients("s3")
        try:
            answer: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except (s3.exceptions.NoSuchKey, s3.exceptions.NoSuchBucket) as error:
            raise ValidationError(f"S3 error: {error} ({url})") from error
        return answer.decode()


def _bucket_and_key(host: str, path: str) -> tuple[str, str]:
    """Read an S3 address, with the bucket in the path or in the host's name."""
    if ".s3." in host:
        return host.split(".s3.", maxsplit=1)[0], path.lstrip("/")
    bucket, _, key = path.lstrip("/").partition("/")
    return bucket, key
