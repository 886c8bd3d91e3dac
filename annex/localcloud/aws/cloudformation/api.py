"""The operations of CloudFormation's API."""

from urllib.parse import unquote, urlsplit

from moto.core.responses import ActionResult, EmptyResult

from megatron_eks.localcloud.aws.cloudformation.errors import ValidationError
from megatron_eks.localcloud.aws.cloudformation.region import Region
from megatron_eks.localcloud.aws.cloudformation.stacks import Stack
from megatron_eks.localcloud.aws.services.operation import Regional


class CloudFormationApi(Regional):
    """Answers requests; moto finds the method by the operation's name."""

    def __init__(self) -> None:
        super().__init__(service_name="cloudformation")
        self.automated_parameter_parsing = True

    @property
    def _region(self) -> Region:
        return self.regions.region(self.region)

    @property
    def _change_set(self) -> tuple[str, str | None]:
        return self.params["ChangeSetName"], self.params.get("StackName")

    @property
    def _stack(self) -> Stack:
        return self._region.find(self.params["StackName"], deleted=True)

    def create_change_set(self) -> ActionResult:
        """CreateChangeSet."""
        body = self._template_body()
        stack, change_set = self._region.create_change_set(self.params, body)
        return ActionResult({"Id": change_set.id, "StackId": stack.id})

    def describe_change_set(self) -> ActionResult:
        """DescribeChangeSet."""
        stack, change_set = self._region.find_change_set(*self._change_set)
        return ActionResult(change_set.describe(stack))

    def execute_change_set(self) -> EmptyResult:
        """ExecuteChangeSet; it ends when the stack has reached its end."""
        self._region.execute_change_set(*self._change_set)
        return EmptyResult()

    def delete_change_set(self) -> EmptyResult:
        """DeleteChangeSet."""
        self._region.delete_change_set(*self._change_set)
        return EmptyResult()

    def list_change_sets(self) -> ActionResult:
        """ListChangeSets."""
        stack = self._region.find(self.params["StackName"])
        summaries = [each.summary(stack) for each in self._region.change_sets(stack)]
        return ActionResult({"Summaries": summaries})

    def delete_stack(self) -> EmptyResult:
        """DeleteStack."""
        self._region.delete(self.params["StackName"])
        return EmptyResult()

    def describe_stacks(self) -> ActionResult:
        """DescribeStacks."""
        found = [self._stack] if self.params.get("StackName") else self._region.living()
        return ActionResult({"Stacks": [stack.describe() for stack in found]})

    def describe_stack_events(self) -> ActionResult:
        """DescribeStackEvents, the latest first."""
        return ActionResult({"StackEvents": list(reversed(self._stack.events))})

    def describe_events(self) -> ActionResult:
        """DescribeEvents: what a change set was refused for, which is told in its status here."""
        return ActionResult({"OperationEvents": []})

    def describe_stack_resources(self) -> ActionResult:
        """DescribeStackResources: of a stack, or of the one that a thing is in."""
        if self.params.get("StackName"):
            return ActionResult({"StackResources": self._stack.describe_resources()})
        physical_id = self.params["PhysicalResourceId"]
        for stack in self._region.living():
            found = stack.describe_resources()
            if physical_id in [each["PhysicalResourceId"] for each in found]:
                return ActionResult({"StackResources": found})
        raise ValidationError(f"Stack for {physical_id} does not exist")

    def list_stack_resources(self) -> ActionResult:
        """ListStackResources."""
        return ActionResult({"StackResourceSummaries": self._stack.describe_resources()})

    def get_template(self) -> ActionResult:
        """GetTemplate."""
        target = self._stack.target
        body = "{}" if target is None else target.body
        return ActionResult({"TemplateBody": body, "StagesAvailable": ["Original", "Processed"]})

    def _template_body(self) -> str | None:
        body: str | None = self.params.get("TemplateBody")
        url = self.params.get("TemplateURL")
        if body is not None or url is None:
            return body
        place = urlsplit(url)
        bucket, key = _bucket_and_key(place.hostname or "", unquote(place.path))
        s3 = self.client("s3")
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
