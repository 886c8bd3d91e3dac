"""Rules over conditions on keys that a statement's actions never have."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.action_resources import has_no_resource, resources_of
from megatron_eks.rules.cloudformation.policy_documents import documents_of
from megatron_eks.rules.policies import parsed, statements, words
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import mapping, shown, truth

_TRUST = "AssumeRolePolicyDocument"
_LISTS = ("s3:listbucket", "s3:listbucketversions", "s3:listbucketmultipartuploads")
_WRITES = ("s3:putobject*", "s3:createmultipartupload", "s3:replicate*", "s3:restoreobject")
# Service Authorization Reference, "Actions, resources, and condition keys", column "Condition
# keys": the only actions whose requests have a key. KMS Developer Guide, "AWS KMS condition keys".
_ONLY: dict[str, tuple[str, ...]] = {
    "s3:prefix": _LISTS,
    "s3:delimiter": _LISTS,
    "s3:max-keys": _LISTS,
    "s3:x-amz-server-side-encryption": (*_WRITES, "s3:createsession"),
    "s3:x-amz-server-side-encryption-aws-kms-key-id": (*_WRITES, "s3:createsession"),
    "s3:x-amz-storage-class": _WRITES,
    "iam:passedtoservice": ("iam:passrole",),
    "kms:grantisforawsresource": ("kms:creategrant", "kms:listgrants", "kms:revokegrant"),
    "kms:viaservice": ("kms:*",),
    "kms:calleraccount": ("kms:*",),
    "ec2:createaction": ("ec2:createtags",),
}
_OF_REQUESTS = "aws:requesttag/"
_OF_RESOURCES = ("aws:resourcetag/", "ec2:resourcetag/")
# What reads or removes brings no tags; DeleteTags names those that go.
_WITHOUT_TAGS = re.compile(
    r"(?!ec2:deletetags)(autoscaling|ec2|ecr|eks|fsx|s3|sqs):"
    r"(batchget|delete|describe|get|list|reboot|start|stop|terminate)[a-z]*"
)
# EC2 User Guide, "Grant permission to tag EC2 resources during creation": a launch names these,
# and tags none of them.
_LAUNCHES = frozenset({"ec2:runinstances", "ec2:createfleet"})
_NEVER_TAGGED = frozenset(
    {
        *("capacity-reservation", "image", "key-pair", "placement-group", "security-group"),
        *("snapshot", "subnet"),
    }
)
_SEPARATE = "allow it on these in a statement without aws:RequestTag"


def keys(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse a condition on a key that requests for an action never have.

    IAM User Guide, "IAM JSON policy elements: Condition operators": a key that is not there does
    not match, so such a statement allows nothing; under StringNotEquals it denies everything.
    """
    for resource in templates.everything():
        for path, name, value in documents_of(resource):
            listed = statements(parsed(value)) or [] if name != _TRUST else []
            for index, body in enumerate(listed):
                others = [each for each in listed if each is not body]
                for key, operator in _judged(body):
                    useless = [
                        action
                        for action in words(body.get("Action"))
                        if _lacks(action.lower(), key.lower(), body)
                        and (body.get("Effect") == "Deny" or not _allowed(action, body, others))
                    ]
                    if useless:
                        place = (*path, "Statement", index, "Condition", operator, key)
                        yield _found(resource, place, useless, body)


def _found(resource: Resource, place: Path, useless: list[str], body: "dict[str, Json]") -> Finding:
    names = ", ".join(useless[:3]) + (" and others" if len(useless) > 3 else "")  # noqa: PLR2004 -- as many as a line shows
    denies = body.get("Effect") == "Deny"
    sense = "is always denied" if denies else "is never allowed"
    found = f"requests for {names} have no key {shown(place[-1])}, so that {sense}"
    remedy = f"give {useless[0]} a statement of its own, without this condition"
    if denies:
        remedy = "deny only actions whose requests have it, such as s3:PutObject"
    return resource.find(Code.POLICY, place, found, remedy)


def _judged(body: "dict[str, Json]") -> Iterator[tuple[str, str]]:
    """Return the keys of a condition that decide where a request does not have them."""
    denies = body.get("Effect") == "Deny"
    conditions = mapping(body.get("Condition")) or {}
    if denies and sum(len(mapping(each) or {}) for each in conditions.values()) > 1:
        # Another key beside it limits whom it denies.
        return
    for operator, value in conditions.items():
        plain = operator.removeprefix("ForAnyValue:")
        if plain.endswith("IfExists") or plain.startswith("ForAllValues"):
            continue
        for key, wanted in (mapping(value) or {}).items():
            absent_matches = truth(wanted) if plain == "Null" else "Not" in plain
            if absent_matches is denies:
                yield key, operator


def _lacks(action: str, key: str, body: "dict[str, Json]") -> bool:
    """Tell whether requests for an action never have a key."""
    denies = body.get("Effect") == "Deny"
    only = _ONLY.get(key)
    if only is not None:
        has = any(fnmatchcase(action, each) for each in only)
        # What a pattern allows may be meant for those that have it; what it denies is all of it.
        meant = any(fnmatchcase(each, action) for each in only) and "*" in action
        return not has and (denies or not meant)
    if key.startswith(_OF_REQUESTS) and not denies:
        return _WITHOUT_TAGS.fullmatch(action) is not None
    return key.startswith(_OF_RESOURCES) and not denies and has_no_resource(action)


def _allowed(action: str, judged: "dict[str, Json]", others: "list[dict[str, Json]]") -> bool:
    """Tell whether another statement may allow the same."""
    whom = judged.get("Principal")
    # The account's own policies, to which a key's may leave it, do not reach these.
    alone = "Service" in (mapping(whom) or {}) or "aws-service-role/" in str(whom)
    for body in others:
        if alone and body.get("Principal") != whom:
            continue
        given = {each.lower() for each in words(body.get("Action"))}
        named = not given or any(fnmatchcase(action.lower(), each) for each in given)
        useless = any(_lacks(action.lower(), key.lower(), body) for key, _ in _judged(body))
        if body.get("Effect") == "Allow" and named and not useless:
            return True
    return False


def launches(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse tags of a launch as a condition on what the launch does not tag.

    EC2 User Guide, "Grant permission to tag Amazon EC2 resources during creation";
    karpenter-provider-aws, "CloudFormation", AllowScopedEC2InstanceAccessActions: each launch also
    asks for its image, subnet and groups, and is UnauthorizedOperation.
    """
    for resource in templates.everything():
        for path, name, value in documents_of(resource):
            listed = statements(parsed(value)) or [] if name != _TRUST else []
            free = [
                kind
                for body in listed
                if not _by_tags(body)
                for kind in _kinds(body, resource, templates)
            ]
            for index, body in enumerate(listed):
                if not _by_tags(body):
                    continue
                kinds = _kinds(body, resource, templates)
                place = (*path, "Statement", index, "Condition")
                if kinds and body.get("Resource") in ("*", ["*"]) and not free:
                    found = "a launch tags no image and no subnet, so no launch is allowed by this"
                    yield resource.find(Code.POLICY, place, found, _SEPARATE, Level.WARNING)
                never = sorted(each for each in kinds & _NEVER_TAGGED if each not in free)
                if never and "*" not in free:
                    found = f"a launch tags no {', '.join(never)}, so it is never allowed on these"
                    yield resource.find(Code.POLICY, place, found, _SEPARATE)


def _by_tags(body: "dict[str, Json]") -> bool:
    return any(key.lower().startswith(_OF_REQUESTS) for key, _ in _judged(body))


def _kinds(body: "dict[str, Json]", resource: Resource, templates: TemplateSet) -> set[str]:
    """Return the kinds of EC2's resources that a statement allows a launch with."""
    given = {each.lower() for each in words(body.get("Action"))}
    launches_here = any(fnmatchcase(each, name) for name in given for each in _LAUNCHES)
    if body.get("Effect") != "Allow" or not launches_here:
        return set()
    known = resources_of(body, resource, templates)
    if known is None:
        return {"*"}
    ends = [each.split(":", 5)[-1].partition("/") for each in known]
    return {kind if slash and "*" not in kind else "*" for kind, slash, _ in ends}
