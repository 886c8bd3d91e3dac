"""CloudFormation stacks as commands see them: state, template, change sets and events."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from botocore.client import BaseClient

from megatron_eks.config.load import Json
from megatron_eks.ops.aws.session import error_code, error_message, if_there

Template = dict[str, "Json"]
_Answer = Mapping[str, Any]

DATA_TYPES = frozenset(
    {
        "AWS::ECR::Repository",
        "AWS::EFS::FileSystem",
        "AWS::FSx::FileSystem",
        "AWS::KMS::Key",
        "AWS::S3::Bucket",
    }
)
"""What holds data: a replaced one is new and empty."""


@dataclass(frozen=True)
class Stack:
    """A stack that exists."""

    name: str
    status: str
    reason: str
    outputs: Mapping[str, str]

    @property
    def busy(self) -> bool:
        """Whether CloudFormation is at work on it."""
        return self.status.endswith("_IN_PROGRESS") and self.status != "REVIEW_IN_PROGRESS"

    @property
    def made(self) -> bool:
        """Whether it holds anything; a mere change set, or a failed creation, does not."""
        return self.status not in {"REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE"}


@dataclass(frozen=True)
class Change:
    """What a change set does to one resource."""

    verb: str
    logical_id: str
    kind: str
    properties: tuple[str, ...]


# By the action, and of a modification by whether it replaces.
_VERBS = {"Add": "add", "Remove": "remove", "Import": "take over"}
_MODIFICATIONS = {"True": "replace", "Conditional": "may replace"}
_EVENT = ("LogicalResourceId", "ResourceType", "ResourceStatus", "ResourceStatusReason")


@dataclass(frozen=True)
class Event:
    """A line of a stack's history."""

    id: str
    logical_id: str
    kind: str
    status: str
    reason: str

    @property
    def failed(self) -> bool:
        """Whether it says why something failed, and not that the rest was given up for it."""
        return self.status.endswith("_FAILED") and "cancelled" not in self.reason


class Stacks:
    """The stacks of one account and region."""

    def __init__(self, cloudformation: BaseClient) -> None:
        self._client = cloudformation

    def find(self, name: str) -> Stack | None:
        """Return a stack; None where there is none."""
        answer = self._existing(self._client.describe_stacks, StackName=name)
        if answer is None:
            return None
        found = answer["Stacks"][0]
        outputs = {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}
        stack = Stack(name, found["StackStatus"], found.get("StackStatusReason", ""), outputs)
        return None if stack.status == "DELETE_COMPLETE" else stack

    def template(self, name: str) -> Template:
        """Return the template that a stack was last deployed with."""
        body = self._client.get_template(StackName=name, TemplateStage="Original")["TemplateBody"]
        return cast("Template", json.loads(body) if isinstance(body, str) else dict(body))

    def resources(self, name: str) -> list[tuple[str, str, str]]:
        """Return logical id, type and physical id of what a stack holds."""
        pages = self._client.get_paginator("list_stack_resources").paginate(StackName=name)
        return [
            (each["LogicalResourceId"], each["ResourceType"], each.get("PhysicalResourceId", ""))
            for page in pages
            for each in page["StackResourceSummaries"]
            if each["ResourceStatus"] != "DELETE_COMPLETE"
        ]

    def holder(self, kind: str, physical_id: str) -> str | None:
        """Return the living stack that holds a thing; None where none does."""
        ask = self._client.describe_stack_resources
        answer = self._existing(ask, PhysicalResourceId=physical_id) or {"StackResources": ()}
        # All resources of that stack, its first hundred, and for 90 days those of a deleted one
        # (CloudFormation API Reference, DescribeStackResources).
        for name in {each["StackName"] for each in answer["StackResources"]}:
            held = self.resources(name) if self.find(name) is not None else ()
            if any(each[1:] == (kind, physical_id) for each in held):
                return str(name)
        return None

    def changes(self, name: str, change_set: str) -> list[Change] | None:
        """Return what a change set does; None where there is none, because nothing changes."""
        pages = self._client.get_paginator("describe_change_set").paginate(
            StackName=name, ChangeSetName=change_set
        )
        found = if_there(
            lambda: [each for page in pages for each in page.get("Changes", [])],
            *("ChangeSetNotFound", "ValidationError"),
        )
        return None if found is None else [_change(each["ResourceChange"]) for each in found]

    def prepare(self, name: str, change_set: str, template: Template) -> None:
        """Make a change set that gives a stack another template, and wait for it."""
        self._client.create_change_set(
            StackName=name,
            ChangeSetName=change_set,
            ChangeSetType="UPDATE",
            TemplateBody=json.dumps(template, separators=(",", ":")),
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
        )
        self._client.get_waiter("change_set_create_complete").wait(
            StackName=name, ChangeSetName=change_set
        )

    def execute(self, name: str, change_set: str) -> bool:
        """Start what a change set says; False where the stack has changed since it was made.

        CloudFormation calls the other change sets of a stack obsolete once one is executed, and
        deletes them.
        """
        answer = if_there(
            self._client.execute_change_set,
            *("ChangeSetNotFound", "InvalidChangeSetStatus"),
            StackName=name,
            ChangeSetName=change_set,
            ClientRequestToken=f"meks-{uuid.uuid4()}",
        )
        return answer is not None

    def forget(self, name: str, change_set: str) -> None:
        """Remove a change set that nobody wants."""
        self._client.delete_change_set(StackName=name, ChangeSetName=change_set)

    def delete(self, name: str) -> None:
        """Start to delete a stack."""
        self._client.delete_stack(StackName=name)

    def events(self, name: str, after: str = "") -> list[Event]:
        """Return what happened to a stack after an event, the oldest first."""
        return list(reversed(list(self._newest(name, after))))

    def last_event(self, name: str) -> str:
        """Return the id of the newest event; nothing for a stack without a history."""
        return next((event.id for event in self._newest(name, "")), "")

    def _existing(self, ask: Callable[..., _Answer], **arguments: str) -> _Answer | None:
        """Return an answer; None where CloudFormation knows no such stack or resource."""
        try:
            return ask(**arguments)
        except self._client.exceptions.ClientError as error:
            if error_code(error) == "ValidationError" and "not exist" in error_message(error):
                return None
            raise

    def _newest(self, name: str, after: str) -> Iterator[Event]:
        pages = self._client.get_paginator("describe_stack_events").paginate(StackName=name)
        try:
            for page in pages:
                for each in page["StackEvents"]:
                    if each["EventId"] == after:
                        return
                    yield Event(each["EventId"], *(each.get(name, "") for name in _EVENT))
        except self._client.exceptions.ClientError as error:
            if error_code(error) != "ValidationError":
                raise


def resources_of(template: Template) -> dict[str, Template]:
    """Return a template's resources by logical id."""
    resources = template.get("Resources")
    return cast("dict[str, Template]", resources) if isinstance(resources, dict) else {}


def _change(change: Mapping[str, Any]) -> Change:
    targets = [detail.get("Target", {}) for detail in change.get("Details", ())]
    names = (target.get("Name") or target.get("Attribute") for target in targets)
    action = str(change.get("Action", ""))
    modification = _MODIFICATIONS.get(change.get("Replacement", ""), "change")
    return Change(
        modification if action == "Modify" else _VERBS.get(action, action.lower()),
        str(change.get("LogicalResourceId", "")),
        str(change.get("ResourceType", "")),
        tuple(dict.fromkeys(filter(None, names))),
    )
