"""What CreateStack, UpdateStack and CreateChangeSet are given, and what is refused of it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from megatron_eks.local.aws.cloudformation import schemas
from megatron_eks.local.aws.cloudformation.errors import (
    InsufficientCapabilitiesError,
    ValidationError,
)
from megatron_eks.local.aws.values import Object

_NAME = re.compile(r"[a-zA-Z][-a-zA-Z0-9]*")
_LONGEST_NAME = 128
# User Guide, "Quotas": of a template in the request itself.
_LARGEST_BODY = 51_200
_WRONG = "1 validation error detected: Value {!r} at {!r} failed to satisfy constraint: Member must"

# API reference, CreateStack, "Capabilities": types that take one, and names that take another.
_IAM = {
    "AWS::IAM::AccessKey": "",
    "AWS::IAM::Group": "GroupName",
    "AWS::IAM::InstanceProfile": "InstanceProfileName",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
    "AWS::IAM::Policy": "",
    "AWS::IAM::Role": "RoleName",
    "AWS::IAM::User": "UserName",
    "AWS::IAM::UserToGroupAddition": "",
}
_PLAIN, _NAMED = "CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"


@dataclass(frozen=True)
class Request:
    """What the three operations have in common."""

    body: str | None
    """None for the template that the stack has."""
    parameters: Mapping[str, str]
    tags: Mapping[str, str] | None
    capabilities: tuple[str, ...]
    role: str | None
    imports: Mapping[str, str] = field(default_factory=dict)
    import_existing: bool = False


def check_name(name: str) -> None:
    """Refuse what is no name of a stack. Raises ValidationError."""
    if not _NAME.fullmatch(name):
        wrong = _WRONG.format(name, "stackName")
        raise ValidationError(f"{wrong} satisfy regular expression pattern: {_NAME.pattern}")
    if len(name) > _LONGEST_NAME:
        wrong = _WRONG.format(name, "stackName")
        raise ValidationError(f"{wrong} have length less than or equal to {_LONGEST_NAME}")


def check_template(body: str | None, url: str | None) -> None:
    """Refuse two templates, and one that is too long to come by itself. Raises ValidationError."""
    if body is not None and url is not None:
        raise ValidationError("Either Template URL or Template Body should be specified.")
    if body is not None and len(body.encode()) > _LARGEST_BODY:
        wrong = _WRONG.format(f"{body[:20]}...", "templateBody")
        raise ValidationError(f"{wrong} have length less than or equal to {_LARGEST_BODY}")


def check_tags(keys: Iterable[str]) -> None:
    """Refuse tags of AWS's own, and two of one key. Raises ValidationError."""
    seen: set[str] = set()
    for key in keys:
        if key.lower().startswith("aws:"):
            raise ValidationError(f"aws: prefixed tag key names are not allowed: {key}")
        if key in seen:
            raise ValidationError(f"Duplicate tag keys found: {key}")
        seen.add(key)


def check_capabilities(template: Object, given: Iterable[str]) -> None:
    """Refuse roles that nobody has acknowledged. Raises InsufficientCapabilitiesError."""
    resources = [
        (_IAM[body["Type"]], body.get("Properties", {}))
        for body in template["Resources"].values()
        if body["Type"] in _IAM
    ]
    named = any(name and name in properties for name, properties in resources)
    enough = {_NAMED} if named else {_PLAIN, _NAMED}
    if resources and not enough & set(given):
        raise InsufficientCapabilitiesError(
            f"Requires capabilities : [{_NAMED if named else _PLAIN}]"
        )


def check_types(region: str, template: Object) -> None:
    """Refuse types that AWS does not have. Raises ValidationError."""
    unknown = sorted(
        {
            body["Type"]
            for body in template["Resources"].values()
            if body["Type"].startswith("AWS::")
            and not body["Type"].startswith("AWS::CloudFormation::")
            and schemas.schema(region, body["Type"]) is None
        }
    )
    if unknown:
        raise ValidationError(
            f"Template format error: Unrecognized resource types: [{', '.join(unknown)}]"
        )
