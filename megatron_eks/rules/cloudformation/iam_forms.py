"""Rules over the words of IAM's own resources: characters, paths, and what may not be empty."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_placeholder, shown, text

_KINDS = (
    *("AWS::IAM::Group", "AWS::IAM::InstanceProfile", "AWS::IAM::ManagedPolicy"),
    *("AWS::IAM::Role", "AWS::IAM::User"),
)
_DESCRIBED = ("AWS::IAM::ManagedPolicy", "AWS::IAM::Role")
_BOUND = ("AWS::IAM::Role", "AWS::IAM::User")
# IAM API, CreateRole: Description, Path and PermissionsBoundary.
_IN_DESCRIPTIONS = re.compile(r"[\t\n\r\x20-\x7e\xa1-\xff]")
_PATH = re.compile(r"/|/[\x21-\x7e]+/")
_LONGEST = 1000


def forms(templates: TemplateSet) -> Iterator[Finding]:
    """Require descriptions, paths and boundaries of roles as IAM takes them.

    IAM API, CreateRole (ValidationError, "failed to satisfy regular expression pattern"): of
    Description Latin characters alone, without dashes and quotes of printers; of Path a slash at
    both ends; of PermissionsBoundary an ARN.
    """
    for role in templates.resources(*_DESCRIBED):
        said = text(role.properties.get("Description")) or ""
        refused = sorted({each for each in said if not _IN_DESCRIPTIONS.fullmatch(each)})
        if refused and not is_placeholder(said):
            found = f"IAM refuses {', '.join(ascii(each) for each in refused)} in it"
            remedy = "use letters, digits and plain signs, such as - for a dash"
            yield role.find(Code.RESOURCE_NAME, ("Description",), found, remedy)
        elif len(said) > _LONGEST:
            found = f"{len(said)} characters: IAM refuses the description"
            yield role.find(Code.RESOURCE_NAME, ("Description",), found, f"use {_LONGEST} at most")
    for part in templates.resources(*_KINDS):
        path = text(part.properties.get("Path"))
        if path is not None and not is_placeholder(path) and not _PATH.fullmatch(path):
            found = f"{shown(path)} is no path: IAM refuses it"
            yield part.find(Code.RESOURCE_NAME, ("Path",), found, f"write /{path.strip('/')}/")
    for role in templates.resources(*_BOUND):
        boundary = text(role.properties.get("PermissionsBoundary"))
        if boundary and not is_placeholder(boundary) and not boundary.startswith("arn:"):
            found = f"{shown(boundary)} is no ARN: IAM refuses the role"
            remedy = "write arn:aws:iam::ACCOUNT:policy/NAME"
            yield role.find(Code.ARN, ("PermissionsBoundary",), found, remedy)
