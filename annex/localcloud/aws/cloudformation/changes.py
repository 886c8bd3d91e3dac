"""Change sets: what carrying out a template would do to a stack, before it does."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from megatron_eks.localcloud.aws.cloudformation import schemas
from megatron_eks.localcloud.aws.cloudformation.intrinsics import AFTER_APPLY, Made, Resolver
from megatron_eks.localcloud.aws.cloudformation.stacks import Resource, Stack, Target
from megatron_eks.localcloud.aws.cloudformation.template import in_order
from megatron_eks.localcloud.aws.values import Object, Value, present

NO_CHANGES = (
    "The submitted information didn't contain changes. Submit different information to create a "
    "change set."
)


@dataclass
class ChangeSet:
    """A target, and how far a stack is from it."""

    name: str
    id: str
    kind: str
    """CREATE or UPDATE."""
    target: Target
    changes: list[Object]
    imports: Mapping[str, str]
    """Physical ids of what is taken over, by name."""
    reason: str | None
    """Why it cannot be carried out."""
    executed: str | None = None
    created: datetime = field(default_factory=lambda: datetime.now(tz=UTC))

    @property
    def status(self) -> str:
        """Whether it can be carried out."""
        return "FAILED" if self.reason else "CREATE_COMPLETE"

    @property
    def execution(self) -> str:
        """Whether it was carried out."""
        return self.executed or ("UNAVAILABLE" if self.reason else "AVAILABLE")

    def summary(self, stack: Stack) -> Object:
        """Return what a list of change sets tells."""
        return present(
            {
                "ChangeSetName": self.name,
                "ChangeSetId": self.id,
                "StackId": stack.id,
                "StackName": stack.name,
                "Status": self.status,
                "StatusReason": self.reason,
                "ExecutionStatus": self.execution,
                "CreationTime": self.created,
            }
        )

    def describe(self, stack: Stack) -> Object:
        """Return what DescribeChangeSet tells."""
        return {
            **self.summary(stack),
            **self.target.describe(),
            "Changes": [{"Type": "Resource", "ResourceChange": each} for each in self.changes],
        }


def changes(stack: Stack, resolver: Resolver, imports: Mapping[str, str]) -> list[Object]:
    """Return what a template would do, each resource after those that it needs."""
    wanted = resolver.wanted()
    found: list[Object] = []
    for name in in_order(wanted):
        body, before = wanted[name], stack.resources.get(name)
        properties = resolver.preview(body.get("Properties", {}))
        if name in imports:
            found.append(_change("Import", name, body["Type"], imports[name]))
        elif before is None:
            found.append(_change("Add", name, body["Type"]))
        else:
            change = _modification(stack, before, body, properties)
            attributes = {**before.attributes}
            if change:
                found.append(change)
                attributes |= dict.fromkeys(_CHANGE_WITH_UPDATES & attributes.keys(), AFTER_APPLY)
            if not change or change["Replacement"] != "True":
                resolver.made[name] = Made(before.physical_id, attributes)
    return found + [
        _change("Remove", each.name, each.kind, each.physical_id)
        for each in stack.resources.values()
        if each.name not in wanted
    ]


# The one attribute in use here that an update in place gives another value.
_CHANGE_WITH_UPDATES = {"LatestVersionNumber"}


def _change(action: str, name: str, kind: str, physical_id: str | None = None) -> Object:
    return present(
        {
            "Action": action,
            "LogicalResourceId": name,
            "ResourceType": kind,
            "PhysicalResourceId": physical_id,
        }
    )


def _modification(
    stack: Stack, before: Resource, body: Object, properties: Object
) -> Object | None:
    targets = [
        {
            "Attribute": "Properties",
            "Name": path[0],
            "RequiresRecreation": _recreation(stack, before.kind, path, properties),
        }
        for path in schemas.changed_paths(before.properties, properties)
    ]
    targets += [
        {"Attribute": attribute, "RequiresRecreation": "Never"}
        for attribute in ("Metadata", "DeletionPolicy", "UpdateReplacePolicy")
        if before.body.get(attribute) != body.get(attribute)
    ]
    if not targets:
        return None
    recreations = {each["RequiresRecreation"] for each in targets}
    words = {"Always": "True", "Conditionally": "Conditional", "Never": "False"}
    replacement = next(word for each, word in words.items() if each in recreations)
    details = [{"Target": each} for each in targets]
    change = _change("Modify", before.name, before.kind, before.physical_id)
    return change | {"Replacement": replacement, "Details": details}


def _recreation(stack: Stack, kind: str, path: tuple[str, ...], properties: Object) -> str:
    if not schemas.is_create_only(stack.region, kind, path):
        return "Never"
    value: Value = properties
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    # What is not known yet may turn out to be what it was.
    return "Conditionally" if AFTER_APPLY in json.dumps(value) else "Always"
