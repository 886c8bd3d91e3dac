"""Refuses a template that CloudFormation refuses before it looks at any resource.

The words are those of CloudFormation's knowledge centre ("Resolve template validation or template
format errors") and User Guide ("Template sections", "Quotas"), where these quote them.
"""

import re
from collections.abc import Iterator

from megatron_eks.local.aws.cloudformation.errors import ValidationError
from megatron_eks.local.aws.cloudformation.functions import check_functions
from megatron_eks.local.aws.values import Object, Value

_SECTIONS = (
    *("AWSTemplateFormatVersion", "Conditions", "Description", "Hooks", "Mappings", "Metadata"),
    *("Outputs", "Parameters", "Resources", "Rules", "Transform"),
)
_OBJECTS = ("Conditions", "Mappings", "Metadata", "Outputs", "Parameters", "Rules")
_VERSION = "2010-09-09"
_ATTRIBUTES = (
    *("Condition", "CreationPolicy", "DeletionPolicy", "DependsOn", "Description", "Metadata"),
    *("Properties", "Type", "UpdatePolicy", "UpdateReplacePolicy"),
)
_POLICIES = {
    "DeletionPolicy": ("Delete", "Retain", "RetainExceptOnCreate", "Snapshot"),
    "UpdateReplacePolicy": ("Delete", "Retain", "Snapshot"),
}
# User Guide, "DeletionPolicy attribute": the types that have snapshots; none of them is made here.
_WITH_SNAPSHOTS = (
    *("AWS::DocDB::DBCluster", "AWS::EC2::Volume", "AWS::ElastiCache::CacheCluster"),
    *("AWS::ElastiCache::ReplicationGroup", "AWS::Neptune::DBCluster", "AWS::RDS::DBCluster"),
    *("AWS::RDS::DBInstance", "AWS::Redshift::Cluster"),
)
_MOST = {"Mappings": 200, "Outputs": 200, "Parameters": 200, "Resources": 500}
_LONGEST_DESCRIPTION = 1024
_NAME = re.compile(r"[a-zA-Z0-9]{1,255}")
_EXPORT = re.compile(r"[a-zA-Z0-9:-]{1,255}")


def check_format(template: Object) -> None:
    """Raise ValidationError for the first thing that is wrong."""
    for found in _mistakes(template):
        raise ValidationError(found)
    check_functions(template)


def _mistakes(template: Object) -> Iterator[str]:
    unknown = [key for key in template if key not in _SECTIONS]
    if unknown:
        yield f"Invalid template property or properties [{', '.join(map(str, unknown))}]"
    version = template.get("AWSTemplateFormatVersion", _VERSION)
    if version != _VERSION:
        yield f"Template format error: [{version}] is no version of templates, {_VERSION} is"
    if "Transform" in template:
        # Left out in silence, what it would have made would be missing.
        yield f"local AWS has no macros, and the template asks for {template['Transform']}"
    for section in _OBJECTS:
        if not isinstance(template.get(section, {}), dict):
            yield f"Template format error: [/{section}] {section} must be an object"
    for section, most in _MOST.items():
        if len(template.get(section, ())) > most:
            yield (
                f"Template format error: Number of {section.lower()}, {len(template[section])}, "
                f"is greater than maximum allowed, {most}"
            )
    description = template.get("Description", "")
    if not isinstance(description, str):
        yield "Template format error: 'Description' must be a string."
    elif len(description.encode()) > _LONGEST_DESCRIPTION:
        yield f"Template format error: 'Description' length is greater than {_LONGEST_DESCRIPTION}."
    yield from _resources(template)
    yield from _outputs(template.get("Outputs", {}))


def _resources(template: Object) -> Iterator[str]:
    for name, body in template["Resources"].items():
        place = f"[/Resources/{name}]"
        if not _NAME.fullmatch(str(name)):
            yield f"Template format error: Resource name {name} is non alphanumeric."
        if not isinstance(body, dict) or not isinstance(body.get("Type"), str):
            yield (
                f"Template format error: {place} Every Resources object must contain a Type member."
            )
            return
        if name in template.get("Parameters", {}):
            yield f"Template format error: {name} names a parameter and a resource"
        for key in body:
            if key not in _ATTRIBUTES:
                yield f"Invalid template resource property '{key}' {place}"
        if not isinstance(body.get("Properties", {}), dict):
            yield f"Template format error: {place} Properties must be an object"
        if not isinstance(body.get("Condition", ""), str):
            yield f"Template format error: {place} Every Condition member must be a string."
        yield from _policies(name, body)
        after = body.get("DependsOn", [])
        if not all(isinstance(each, str) for each in (after if isinstance(after, list) else ())):
            yield f"Template format error: {place} Every DependsOn value must be a string."


def _policies(name: str, body: Object) -> Iterator[str]:
    for key, allowed in _POLICIES.items():
        policy = body.get(key, "Delete")
        if policy not in allowed and not isinstance(policy, dict):
            yield f"Template format error: Unrecognized {key} {policy} for resource {name}"
        elif policy == "Snapshot" and body["Type"] not in _WITH_SNAPSHOTS:
            yield f"Template error: resource type {body['Type']} does not support Snapshot as {key}"


def _outputs(outputs: Object) -> Iterator[str]:
    exports: set[str] = set()
    for name, body in outputs.items():
        if not _NAME.fullmatch(str(name)):
            yield f"Template format error: Output name {name} is non alphanumeric."
        if not isinstance(body, dict) or "Value" not in body:
            yield "Template format error: Every Outputs member must contain a Value object"
            return
        if isinstance(body["Value"], list):
            yield (
                "Template format error: The Value field of every Outputs member must evaluate to a "
                "String."
            )
        yield from _export(name, body.get("Export"), exports)


def _export(name: str, export: Value, exports: set[str]) -> Iterator[str]:
    if export is None:
        return
    if not isinstance(export, dict) or list(export) != ["Name"]:
        yield f"Template format error: [/Outputs/{name}/Export] Export takes a Name, and it alone"
        return
    called = export["Name"]
    if not isinstance(called, str):
        return
    if not _EXPORT.fullmatch(called):
        yield (
            f"Template format error: [/Outputs/{name}/Export] {called!r} is no name of an export: "
            "use letters, digits, colons and hyphens"
        )
    if called in exports:
        yield f"Template format error: Duplicate Export names: {called}"
    exports.add(called)
