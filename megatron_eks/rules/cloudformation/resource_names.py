"""Rule over the names that services take for their resources."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_placeholder, shown, written


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
# S3 User Guide, "General purpose bucket naming rules".
_KEPT_STARTS = ("xn--", "sthree-")
_KEPT_ENDS = ("-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3")
_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_SHORTEST = 3
# EC2 API, CreateLaunchTemplate.
_LAUNCH_TEMPLATE = re.compile(r"[a-zA-Z0-9()./_-]{3,128}")


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
    yield from _of_buckets(templates)
    yield from _of_launch_templates(templates)


def _of_buckets(templates: TemplateSet) -> Iterator[Finding]:
    for bucket in templates.resources("AWS::S3::Bucket"):
        name = written(bucket.properties.get("BucketName")) or ""
        whole = not _PART.search(name)
        kept = next((each for each in _KEPT_STARTS if name.startswith(each)), None)
        kept = kept or next((each for each in _KEPT_ENDS if whole and name.endswith(each)), None)
        if kept is not None:
            found = f"{shown(name)}: S3 keeps names with {kept} to itself"
        elif whole and _ADDRESS.fullmatch(name):
            found = f"{shown(name)} looks like an address: S3 refuses it"
        elif ".." in name or (whole and 0 < len(name) < _SHORTEST):
            found = f"{shown(name)}: S3 refuses it"
        else:
            continue
        remedy = "use 3 to 63 small letters, digits, single dots and hyphens"
        yield bucket.find(Code.RESOURCE_NAME, ("BucketName",), found, remedy)


def _of_launch_templates(templates: TemplateSet) -> Iterator[Finding]:
    for template in templates.resources("AWS::EC2::LaunchTemplate"):
        name = written(template.properties.get("LaunchTemplateName"))
        if name is None or _PART.search(name) or is_placeholder(name):
            continue
        if not _LAUNCH_TEMPLATE.fullmatch(name):
            found = f"{shown(name)}: EC2 refuses it"
            remedy = "use 3 to 128 letters, digits and ()./_-"
            yield template.find(Code.RESOURCE_NAME, ("LaunchTemplateName",), found, remedy)
