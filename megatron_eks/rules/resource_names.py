"""Rule over the names that services take for their resources."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import shown, written


class _Named(NamedTuple):
    type: str
    key: str
    allowed: str
    """The characters it may have, as in a regular expression."""
    longest: int
    said: str


# S3 User Guide, "Bucket naming rules"; ECR API, CreateRepository; EKS API, CreateCluster and
# CreateNodegroup; CloudWatch Logs API, CreateLogGroup; IAM API, CreateRole; CodeBuild API, Project.
_TABLE = (
    _Named("AWS::S3::Bucket", "BucketName", "a-z0-9.-", 63, "small letters, digits, . and -"),
    _Named(
        *("AWS::ECR::Repository", "RepositoryName", "a-z0-9._/-", 256),
        "small letters, digits and ._/-",
    ),
    _Named("AWS::EKS::Cluster", "Name", "A-Za-z0-9_-", 100, "letters, digits, _ and -"),
    _Named("AWS::EKS::Nodegroup", "NodegroupName", "A-Za-z0-9_-", 63, "letters, digits, _ and -"),
    _Named(
        "AWS::Logs::LogGroup", "LogGroupName", "A-Za-z0-9._/#-", 512, "letters, digits and ._/#-"
    ),
    _Named("AWS::IAM::Role", "RoleName", "A-Za-z0-9+=,.@_-", 64, "letters, digits and +=,.@_-"),
    _Named("AWS::CodeBuild::Project", "Name", "A-Za-z0-9_-", 150, "letters, digits, _ and -"),
)
_PART = re.compile(r"\$\{[^}]*\}")


def names(templates: TemplateSet) -> Iterator[Finding]:
    """Require names of which the service takes every character, as far as they are written out.

    S3 User Guide, "Bucket naming rules", and each service's API: the stack is rolled back.
    """
    for type_name, key, allowed, longest, said in _TABLE:
        for resource in templates.resources(type_name):
            name = written(resource.properties.get(key))
            plain = _PART.sub("", name or "")
            wrong = sorted(set(re.sub(f"[{allowed}]", "", plain)))
            # What is left of a template engine's own signs is not what the service gets.
            if set(wrong) & set("${}<>%"):
                continue
            if wrong or len(plain) > longest:
                problem = f"has {', '.join(map(shown, wrong))}" if wrong else "is too long"
                found = f"{shown(name)} {problem}: the service refuses it"
                remedy = f"use {said}, at most {longest}"
                yield resource.find(Code.RESOURCE_NAME, (key,), found, remedy)
