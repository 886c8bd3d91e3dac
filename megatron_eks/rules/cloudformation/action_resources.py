"""Rule over the resources of a policy's statement, on which its actions must work."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.listing import OF_BUCKETS
from megatron_eks.rules.cloudformation.policy_documents import OF_A_PATH, OF_OBJECTS, documents_of
from megatron_eks.rules.policies import HOLDERS, parsed, statements, words
from megatron_eks.rules.shapes import RESOURCES, table
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, written

_TRUST = "AssumeRolePolicyDocument"
_PARTS_OF_AN_ARN = 6
_LONGEST = 200
_SHOWN = 3
# The reference leaves some actions without a type that do work on resources, such as
# logs:DescribeLogGroups; of these it is sure.
_ON_EVERYTHING = re.compile(
    r"ecr:getauthorizationtoken|ecr-public:getauthorizationtoken|ec2:describe[a-z]+"
    r"|s3:listallmybuckets|eks:listclusters|cloudwatch:putmetricdata|ssm:describeparameters"
    r"|autoscaling:describe[a-z]+|kms:(listkeys|listaliases|createkey)|sts:getcalleridentity"
    r"|pricing:getproducts"
)
_LISTS_PARAMETERS = "ssm:DescribeParameters"
_READS_PARAMETERS = {f"ssm:GetParameter{end}" for end in ("", "s", "History")}
_NAME = re.compile(r"\$\{(?P<name>[A-Za-z0-9]+)\.Arn\}")
_PART = re.compile(r"\$\{[^}]*\}")
# What the attribute Arn of a resource is, behind partition, region and account.
_ARNS = {
    "AWS::AutoScaling::AutoScalingGroup": "arn:*:autoscaling:*:*:autoScalingGroup:*",
    "AWS::CodeBuild::Project": "arn:*:codebuild:*:*:project/*",
    "AWS::ECR::Repository": "arn:*:ecr:*:*:repository/*",
    "AWS::EKS::Cluster": "arn:*:eks:*:*:cluster/*",
    "AWS::EKS::Nodegroup": "arn:*:eks:*:*:nodegroup/*",
    "AWS::IAM::InstanceProfile": "arn:*:iam:*:*:instance-profile/*",
    "AWS::IAM::Role": "arn:*:iam:*:*:role/*",
    "AWS::KMS::Key": "arn:*:kms:*:*:key/*",
    "AWS::Logs::LogGroup": "arn:*:logs:*:*:log-group:*",
    "AWS::S3::Bucket": "arn:*:s3:::bucket",
    "AWS::SQS::Queue": "arn:*:sqs:*:*:queue",
}


def actions(templates: TemplateSet) -> Iterator[Finding]:
    """Require of each allowed action a resource of a kind that it works on.

    Service Authorization Reference, "Actions, resources, and condition keys", column "Resource
    types", by way of cfn-lint: an action that fits none of a statement's resources is denied, and
    some take "*" alone.
    """
    for resource in templates.everything():
        allowing = [
            ((*path, "Statement", index), body)
            for path, name, value in documents_of(resource)
            for index, body in enumerate(statements(parsed(value)) or [] if name != _TRUST else [])
            if body.get("Effect") == "Allow" and is_absent(body.get("NotResource"))
        ]
        judged = [(path, body, resources_of(body, resource, templates)) for path, body in allowing]
        for path, body, given in judged:
            denied = [
                action
                for action in words(body.get("Action") if given else None)
                if _is_denied(action, given or [])
                and not _is_said(action, resource, given or [])
                and not _of_the_cdk(action, body)
                # Another statement may allow the same where it works.
                and not any(_may_allow(action, *each[1:]) for each in judged)
            ]
            by_kinds: dict[str, list[str]] = {}
            for action in denied:
                by_kinds.setdefault(" ".join(_kinds(action) or []), []).append(action)
            for kinds, names in by_kinds.items():
                found, remedy = _said(kinds.split(), names)
                yield resource.find(Code.POLICY, (*path, "Resource"), found, remedy)


def resources_of(
    body: "dict[str, Json]", resource: Resource, templates: TemplateSet
) -> list[str] | None:
    """Return the resources of a statement; None where one is everything, or is not known."""
    given = body.get("Resource")
    listed = [given] if not isinstance(given, list) else items(given)
    known = [_known(each, resource, templates) for each in listed or []]
    texts = [each for each in known if each is not None]
    return texts if texts and len(texts) == len(known) and "*" not in texts else None


def has_no_resource(action: str) -> bool:
    """Tell an action that surely works on no resource, and so sees no tags of one."""
    return not _kinds(action) and _ON_EVERYTHING.fullmatch(action.lower()) is not None


def _is_denied(action: str, resources: list[str]) -> bool:
    """Tell whether an action works on none of the resources, as far as it is known."""
    kinds = _kinds(action)
    if not kinds:
        return _ON_EVERYTHING.fullmatch(action.lower()) is not None
    return not any(_fits(action, kind, each) for kind in kinds for each in resources)


def _is_said(action: str, resource: Resource, resources: list[str]) -> bool:
    """Tell what the rules over buckets say already, and say better."""
    of_objects = OF_OBJECTS.fullmatch(action) is not None and all(map(_is_bucket, resources))
    return of_objects or (action in OF_BUCKETS and resource.type in HOLDERS)


def _of_the_cdk(action: str, body: "dict[str, Json]") -> bool:
    """Tell what the CDK puts beside the actions that count, and nobody can take from there.

    aws/aws-cdk, packages/aws-cdk-lib/aws-ssm/lib/parameter.ts, grantRead.
    """
    return action == _LISTS_PARAMETERS and set(words(body.get("Action"))) >= _READS_PARAMETERS


def _may_allow(action: str, body: "dict[str, Json]", resources: list[str] | None) -> bool:
    given = {each.lower() for each in words(body.get("Action"))}
    named = not given or any(fnmatchcase(action.lower(), each) for each in given)
    return named and (resources is None or not _is_denied(action, resources))


def _said(kinds: list[str], names: list[str]) -> tuple[str, str]:
    """Return what is wrong with actions of the same kinds, and what to do."""
    if not kinds:
        remedy = f'give {names[0]} a statement of its own with Resource "*"'
        return f"{names[0]} has no resource, so this allows nothing", remedy
    said = ", ".join(names[:_SHOWN]) + (" and others" if names[_SHOWN:] else "")
    wanted = [each for each in kinds if not each.startswith("accesspoint")]
    found = f"{said} on another kind of resource than {' or '.join(wanted[:_SHOWN])}, so this "
    return f"{found}allows nothing", f"add {_example(names[0], wanted)}"


def _kinds(action: str) -> list[str] | None:
    """Return the kinds of resources of an action; None where it is a pattern, or not known."""
    service, _, name = action.lower().partition(":")
    by_kinds = table(RESOURCES).get(service)
    if isinstance(by_kinds, dict):
        for kinds, names in by_kinds.items():
            if isinstance(names, list) and name in {str(each).lower() for each in names}:
                return kinds.split()
    return None


def _known(value: Json, user: Resource, templates: TemplateSet) -> str | None:
    """Return a resource with `*` for what may be anything; None where nothing is known."""
    said = written(value)
    if said is None or said == "*":
        return said
    if OF_A_PATH.search(said):
        return None
    match = _NAME.match(said)
    if match is not None:
        target = templates.target({"Ref": match["name"]}, user.file)
        arn = _ARNS.get(target.type) if target is not None else None
        said = f"{arn}{said[match.end() :]}" if arn else ""
    bucket = ":s3:::" in said
    # A bucket's name is no path, whatever it is.
    head, slash, tail = said.partition("/") if bucket else ("", "", said)
    said = _PART.sub("x", head.partition(":::")[2]) if bucket else ""
    said = f"arn:*:s3:::{said}{slash}{_PART.sub('*', tail)}" if bucket else _PART.sub("*", tail)
    whole = said.startswith("arn:") and len(said.split(":", 5)) == _PARTS_OF_AN_ARN
    return said[:_LONGEST] if whole and not is_placeholder(said) else None


def _is_bucket(arn: str) -> bool:
    return ":s3:::" in arn and "/" not in arn and not arn.endswith("*")


def _fits(action: str, kind: str, arn: str) -> bool:
    _, _, service, _, _, name = arn.split(":", 5)
    if service == "s3" and ":::" in arn and kind in {"bucket", "object"}:
        open_ended = "*" in name.partition("/")[0]
        return ("/" in name) == (kind == "object") or (open_ended and "/" not in name)
    forms = table(RESOURCES).get(f"@{action.lower().partition(':')[0]}") or {}
    listed = forms.get(kind) if isinstance(forms, dict) else None
    if not isinstance(listed, list):
        return True
    return any(_meet(f"{service}:{name}", str(each)) for each in listed)


@cache
def _meet(one: str, other: str) -> bool:
    """Tell whether some text matches both of two patterns with `*` and `?`."""
    if not one or not other:
        return not (one + other).strip("*")
    if one[0] == "*":
        return _meet(one[1:], other) or _meet(one, other[1:])
    if other[0] == "*":
        return _meet(other, one)
    same = one[0] == other[0] or "?" in {one[0], other[0]}
    return same and _meet(one[1:], other[1:])


def _example(action: str, kinds: list[str]) -> str:
    forms = table(RESOURCES).get(f"@{action.lower().partition(':')[0]}") or {}
    listed = forms.get(kinds[0]) if isinstance(forms, dict) else None
    service, _, ending = str(
        listed[0] if isinstance(listed, list) and listed else "s3:*"
    ).partition(":")
    if service == "s3" and kinds[0] in {"bucket", "object"}:
        return "arn:aws:s3:::BUCKET" + ("/*" if kinds[0] == "object" else "")
    return f"arn:aws:{service}:REGION:ACCOUNT:{ending}"
