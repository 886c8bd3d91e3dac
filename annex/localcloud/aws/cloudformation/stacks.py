"""What is known of a stack: its template, resources, outputs and events."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from megatron_eks.localcloud.aws.values import ACCOUNT, PARTITION, Object, Value, present

STACK_TYPE = "AWS::CloudFormation::Stack"
_TICK = timedelta(milliseconds=1)
KEEP = ("Retain", "RetainExceptOnCreate")


@dataclass
class Resource:
    """One resource as it was last made or changed."""

    name: str
    kind: str
    physical_id: str
    properties: Object
    """Without functions."""
    body: Object
    """As the template has it."""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    status: str = "CREATE_COMPLETE"
    updated: datetime = field(default_factory=lambda: datetime.now(tz=UTC))


@dataclass(frozen=True)
class Target:
    """What a stack is asked to become."""

    template: Object
    body: str
    """The template's text, as it was sent."""
    raw_parameters: Mapping[str, str]
    parameters: Mapping[str, Value]
    tags: Sequence[Object]

    def describe(self) -> Object:
        """Return what is told of it, of a stack or a change set."""
        parameters = [
            {"ParameterKey": key, "ParameterValue": value}
            for key, value in self.raw_parameters.items()
        ]
        return {"Parameters": parameters, "Tags": self.tags}


@dataclass
class Stack:
    """A stack and its history."""

    name: str
    region: str
    target: Target | None = None
    """What it is; None until something was carried out."""
    status: str = "REVIEW_IN_PROGRESS"
    reason: str | None = None
    resources: dict[str, Resource] = field(default_factory=dict)
    outputs: list[Object] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    created: datetime = field(default_factory=lambda: datetime.now(tz=UTC))
    updated: datetime | None = None
    deleted: datetime | None = None
    events: list[Object] = field(default_factory=list)
    id: str = ""

    def __post_init__(self) -> None:
        """Give every new stack an id, also one of a name that was there before."""
        self.id = stack_arn(self.region, self.name)

    @property
    def exports(self) -> dict[str, Value]:
        """What other stacks may import."""
        return {
            each["ExportName"]: each["OutputValue"] for each in self.outputs if "ExportName" in each
        }

    def say(self, status: str, reason: str | None = None) -> None:
        """Take on a status, and tell it in an event."""
        self.status, self.reason = status, reason
        self.event(self.name, STACK_TYPE, self.id, status, reason)

    def event(
        self, name: str, kind: str, physical_id: str, status: str, reason: str | None = None
    ) -> None:
        """Add to the history, a millisecond or more after the last: clients sort by that."""
        now = datetime.now(tz=UTC)
        if self.events:
            now = max(now, self.events[-1]["Timestamp"] + _TICK)
        event = {
            "StackId": self.id,
            "StackName": self.name,
            "EventId": str(uuid.uuid4()),
            "LogicalResourceId": name,
            "PhysicalResourceId": physical_id,
            "ResourceType": kind,
            "ResourceStatus": status,
            "Timestamp": now,
        }
        self.events.append(event | ({"ResourceStatusReason": reason} if reason else {}))

    def describe(self) -> Object:
        """Return the stack as DescribeStacks tells it."""
        target = self.target
        described = {
            "StackId": self.id,
            "StackName": self.name,
            "CreationTime": self.created,
            "LastUpdatedTime": self.updated,
            "DeletionTime": self.deleted,
            "StackStatus": self.status,
            "StackStatusReason": self.reason,
            "Description": target.template.get("Description") if target else None,
            **(target.describe() if target else {}),
            "Outputs": self.outputs,
        }
        return present(described)

    def describe_resources(self) -> list[Object]:
        """Return the resources as DescribeStackResources and ListStackResources tell them."""
        return [
            {
                "StackId": self.id,
                "StackName": self.name,
                "LogicalResourceId": resource.name,
                "PhysicalResourceId": resource.physical_id,
                "ResourceType": resource.kind,
                "ResourceStatus": resource.status,
                "Timestamp": resource.updated,
                "LastUpdatedTimestamp": resource.updated,
            }
            for resource in list(self.resources.values())
        ]


def stack_arn(region: str, name: str, kind: str = "stack") -> str:
    """Return a new id of a stack or change set."""
    return f"arn:{PARTITION}:cloudformation:{region}:{ACCOUNT}:{kind}/{name}/{uuid.uuid4()}"
