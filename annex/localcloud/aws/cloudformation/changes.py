"""Change sets: what carrying out a template would do to a stack, before it does."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from megatron_eks.localcloud.aws.cloudformation import schemas
from megatron_eks.localcloud.aws.cloudformation.intrinsics import AFTER_APPLY, Made, Resolver
from megatron_eks.localcloud.aws.cloudformation.stacks import Resource, Stack, Target
from megatron_eks.localcloud.aws.cloudformation.template import in_order
from megatron_eks.localcloud.aws.values import Object, Value, tag_list

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
    imports: Mapping[str, str] = field(default_factory=dict)
    """Physical ids of what is taken over, by name."""
    status: str = "CREATE_COMPLETE"
    reason: str | None = None
    execution: str = "AVAILABLE"
    created: datetime = field(default_factory=lambda: datetime.now(tz=UTC))

    def fail(self, reason: str) -> None:
        """Say why it cannot be carried out."""
        self.status, self.reason, self.execution = "FAILED", reason, "UNAVAILABLE"

    def summary(self, stack: Stack) -> Object:
        """Return what a list of change sets tells."""
        told = {
            "ChangeSetName": self.name,
            "ChangeSetId": self.id,
            "StackId": stack.id,
            "StackName": stack.name,
            "Status": self.status,
            "StatusReason": self.reason,
            "ExecutionStatus": self.execution,
            "CreationTime": self.created,
        }
        return {key: value for key, value in told.items() if value is not None}

    def describe(self, stack: Stack) -> Object:
        """Return what DescribeChangeSet tells."""
        return self.summary(stack) | {
            "Parameters": [
                {"ParameterKey": key, "ParameterValue": value}
                for key, value in self.target.raw_parameters.items()
            ],
            "Tags": tag_list(dict(self.target.tags)),
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
            context = {"Properties": properties}
            found.append(_change("Add", name, body["Type"]) | {"AfterContext": json.dumps(context)})
        else:
            change = _modification(stack, before, body, properties)
            if change is None or change["Replacement"] != "True":
                attributes = before.attributes
                if change is not None:
                    attributes = {
                        key: AFTER_APPLY if key in _CHANGE_WITH_UPDATES else value
                        for key, value in attributes.items()
                    }
                resolver.made[name] = Made(before.physical_id, attributes)
            if change is not None:
                found.append(change)
    found += [
        _change("Remove", each.name, each.kind, each.physical_id)
        | {"PolicyAction": "Retain" if each.body.get("DeletionPolicy") else "Delete"}
        for each in stack.resources.values()
        if each.name not in wanted
    ]
    return found


# The one attribute in use here that an update in place gives another value.
_CHANGE_WITH_UPDATES = {"LatestVersionNumber"}


def _change(action: str, name: str, kind: str, physical_id: str | None = None) -> Object:
    change: Object = {
        "Action": action,
        "LogicalResourceId": name,
        "ResourceType": kind,
        "Scope": [],
        "Details": [],
    }
    return change | ({"PhysicalResourceId": physical_id} if physical_id else {})


def _modification(
    stack: Stack, before: Resource, body: Object, properties: Object
) -> Object | None:
    details: list[Object] = [
        {
            "Target": {
                "Attribute": "Properties",
                "Name": path[0],
                "RequiresRecreation": recreation,
                "Path": f"/Properties/{'/'.join(path)}",
                **_value("BeforeValue", before.properties, path),
                **_value("AfterValue", properties, path),
            },
            "Evaluation": "Static",
            "ChangeSource": "DirectModification",
        }
        for path, recreation in _paths(stack, before, properties)
    ]
    scope = ["Properties"] if details else []
    for attribute in ("Metadata", "DeletionPolicy", "UpdateReplacePolicy"):
        if before.body.get(attribute) != body.get(attribute):
            scope.append(attribute)
            details.append(
                {
                    "Target": {"Attribute": attribute, "RequiresRecreation": "Never"},
                    "Evaluation": "Static",
                    "ChangeSource": "DirectModification",
                }
            )
    if not details:
        return None
    recreations = {each["Target"]["RequiresRecreation"] for each in details}
    replacement = (
        "True"
        if "Always" in recreations
        else "Conditional"
        if "Conditionally" in recreations
        else "False"
    )
    change = _change("Modify", before.name, before.kind, before.physical_id)
    change |= {"Replacement": replacement, "Scope": scope, "Details": details}
    if replacement == "True":
        kept = before.body.get("UpdateReplacePolicy") == "Retain"
        change["PolicyAction"] = "ReplaceAndRetain" if kept else "ReplaceAndDelete"
    change["BeforeContext"] = json.dumps({"Properties": before.properties})
    change["AfterContext"] = json.dumps({"Properties": properties})
    return change


def _paths(
    stack: Stack, before: Resource, properties: Object
) -> Iterator[tuple[tuple[str, ...], str]]:
    for path in schemas.changed_paths(before.properties, properties):
        recreation = "Never"
        if schemas.is_create_only(stack.region, before.kind, path):
            # What is not known yet may turn out to be what it was.
            unknown = AFTER_APPLY in json.dumps(_at(properties, path))
            recreation = "Conditionally" if unknown else "Always"
        yield path, recreation


def _value(key: str, properties: Object, path: tuple[str, ...]) -> Object:
    value = _at(properties, path)
    if value is None:
        return {}
    return {key: value if isinstance(value, str) else json.dumps(value)}


def _at(value: Value, path: tuple[str, ...]) -> Value:
    for part in path:
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value
