"""Rule over IAM policy documents, wherever a template writes one."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import filter as fnfilter

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import parsed
from megatron_eks.rules.shapes import RESOURCES, table
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_intrinsic,
    is_placeholder,
    items,
    mapping,
    shown,
    written,
)

_OF_REPOSITORY = "RepositoryPolicyText"
_BUCKET_POLICY = "AWS::S3::BucketPolicy"
_DOCUMENTS = frozenset({"AssumeRolePolicyDocument", "KeyPolicy", "PolicyDocument", _OF_REPOSITORY})
# IAM User Guide, "IAM JSON policy elements: Sid"; other services take spaces too.
_SID = re.compile(r"[A-Za-z0-9]*")
_CLOSE = 0.88
# A pattern is shorter than the actions that it is for.
_CLOSE_PATTERN = 0.6
_TRUST = "AssumeRolePolicyDocument"
_KEYS = frozenset(
    {
        *("Action", "Condition", "Effect", "NotAction", "NotPrincipal", "NotResource", "Principal"),
        *("Resource", "Sid"),
    }
)
_PRINCIPALS = frozenset({"AWS", "CanonicalUser", "Federated", "Service"})
_VERSIONS = ("2012-10-17", "2008-10-17")
# IAM User Guide, "IAM JSON policy elements: Action" and "Condition operators".
# Amazon S3 User Guide, "Required permissions for Amazon S3 API operations": operations whose
# permission has another name.
_PERMISSIONS = {
    **dict.fromkeys(("listobjects", "listobjectsv2", "headbucket"), "ListBucket"),
    **dict.fromkeys(("headobject", "getobjects"), "GetObject"),
    **dict.fromkeys(("createmultipartupload", "completemultipartupload"), "PutObject"),
    **dict.fromkeys(("uploadpart", "uploadpartcopy", "copyobject", "putobjects"), "PutObject"),
    **dict.fromkeys(("deleteobjects",), "DeleteObject"),
    "listparts": "ListMultipartUploadParts",
    "listmultipartuploads": "ListBucketMultipartUploads",
    "listbuckets": "ListAllMyBuckets",
    "getbucketencryption": "GetEncryptionConfiguration",
    "getbucketlifecycleconfiguration": "GetLifecycleConfiguration",
}
# IAM reads both parts in any case.
_ACTION = re.compile(r"\*|[A-Za-z0-9-]+:[A-Za-z0-9*?]+")
_OPERATOR = re.compile(
    r"(For(AllValues|AnyValue):)?(String(Not)?(Equals|EqualsIgnoreCase|Like)"
    r"|Numeric(Not)?Equals|Numeric(LessThan|GreaterThan)(Equals)?"
    r"|Date(Not)?Equals|Date(LessThan|GreaterThan)(Equals)?"
    r"|Bool|BinaryEquals|(Not)?IpAddress|Arn(Not)?(Equals|Like)|Null)(IfExists)?"
)
OF_OBJECTS = re.compile(r"s3:(Get|Put|Delete|Restore)Object|s3:AbortMultipartUpload")
# A bucket's own ARN, as a text or as the attribute of a resource.
_PART = r"\$\{[^}]*\}"
_BUCKET = re.compile(
    rf"arn:(?:[a-z-]+|{_PART}):s3:::([a-z0-9.-]|{_PART})+|\$\{{[A-Za-z0-9]+\.Arn\}}"
)
# What a parameter of such a name holds may be a bucket's name with an object's behind it.
OF_A_PATH = re.compile(
    r":s3:::[^/]*\$\{[^}]*(path|key|prefix|object|ur[il]|file|location)s?\}$", re.IGNORECASE
)
# What stands for amazonaws.com in other partitions (botocore, partitions.json), and what
# aws/aws-parallelcluster, tests/iam_policies/cluster-roles.cfn.yaml, has for China and GovCloud.
ELSEWHERE = (
    *("amazonaws.cn", "amazonaws-us-gov.com"),
    *("amazonaws.com.cn", "amazonaws.eu", "c2s.ic.gov", "cloud.adc-e.uk", "csp.hci.ic.gov"),
    "sc2s.sgov.gov",
)
_DOMAINS = "|".join(re.escape(each) for each in ELSEWHERE)
_SERVICE = re.compile(rf"[a-z0-9.-]+\.(amazonaws\.com|aws\.internal|aws|{_DOMAINS})")
_WORD = re.compile(r"[a-z][a-z0-9-]+")


def documents(templates: TemplateSet) -> Iterator[Finding]:
    """Require policies that IAM can read.

    IAM User Guide, "IAM JSON policy element reference"; IAM answers MalformedPolicyDocument when
    the stack is under way.
    """
    for resource in templates.everything():
        for path, name, value in documents_of(resource):
            body = mapping(parsed(value))
            if body is not None and not is_absent(value):
                yield from _document(resource, path, name, body)


def documents_of(resource: Resource) -> Iterator[tuple[Path, str, Json]]:
    """Return every policy document of a resource, with its place and the name of its property."""
    yield from _documents(dict(resource.properties), ())


def _documents(value: Json, path: Path) -> Iterator[tuple[Path, str, Json]]:
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        # AWS SAM takes documents themselves as the policies of a function.
        listed = path[-1:] == ("Policies",) and isinstance(each, dict) and "Statement" in each
        if key in _DOCUMENTS or listed:
            yield (*path, key), str(key) if key in _DOCUMENTS else "PolicyDocument", each
        else:
            yield from _documents(each, (*path, key))


def _wrong(resource: Resource, path: Path, found: str, remedy: str) -> Finding:
    return resource.find(Code.POLICY, path, found, remedy)


def _document(
    resource: Resource, path: Path, name: str, body: dict[str, Json]
) -> Iterator[Finding]:
    version = body.get("Version")
    known = is_absent(version) or is_intrinsic(version) or version in _VERSIONS
    if not known and not (isinstance(version, str) and is_placeholder(version)):
        remedy = f'use "{_VERSIONS[0]}"'
        yield _wrong(resource, (*path, "Version"), f"{shown(version)} is no version", remedy)
    for key in body:
        if key not in {"Id", "Statement", "Version"} and not key.startswith("Fn::"):
            remedy = "known: Id, Statement, Version"
            yield _wrong(resource, (*path, key), f"a policy has no {shown(key)}", remedy)
    statements = body.get("Statement")
    if is_absent(statements):
        yield _wrong(resource, (*path, "Statement"), "no statement", "add one")
    listed = [statements] if isinstance(statements, dict) else items(statements)
    for index, value in enumerate(listed or []):
        statement = mapping(value)
        if statement:
            yield from _statement(resource, (*path, "Statement", index), name, statement)


def _statement(
    resource: Resource, path: Path, name: str, body: dict[str, Json]
) -> Iterator[Finding]:
    if any(key.startswith("Fn::") for key in body):
        return
    for key in body:
        if key not in _KEYS:
            remedy = f"known: {', '.join(sorted(_KEYS))}"
            yield _wrong(resource, (*path, key), f"a statement has no {shown(key)}", remedy)
    effect = body.get("Effect")
    if effect not in ("Allow", "Deny") and not is_intrinsic(effect):
        found = "no effect" if is_absent(effect) else f"{shown(effect)} is no effect"
        yield _wrong(resource, (*path, "Effect"), found, "write Allow or Deny")
    of_identity = name == "PolicyDocument" and resource.type != _BUCKET_POLICY
    whom = () if of_identity else ("Principal",)
    what = () if name in (_TRUST, _OF_REPOSITORY) else ("Resource",)
    for key in ("Action", *whom, *what):
        if is_absent(body.get(key)) and is_absent(body.get(f"Not{key}")):
            yield _wrong(resource, (*path, key), f"a statement without {key}", f"add {key}")
    yield from _resources(resource, (*path, "Resource"), body)
    for key in ("Action", "NotAction"):
        yield from _actions(resource, (*path, key), body.get(key))
    yield from _principals(resource, (*path, "Principal"), mapping(body.get("Principal")) or {})
    yield from _of_identity(resource, path, name, body)
    for operator in mapping(body.get("Condition")) or {}:
        if not _OPERATOR.fullmatch(operator) and not is_placeholder(operator):
            found = f"IAM has no condition {shown(operator)}"
            place = (*path, "Condition", operator)
            yield _wrong(resource, place, found, "use one of IAM's, such as StringEquals")


def _of_identity(
    resource: Resource, path: Path, name: str, body: dict[str, Json]
) -> Iterator[Finding]:
    """Refuse what IAM's own policies lack: whom in a role's, for what in a role's trust."""
    own = name == "PolicyDocument" and resource.type.startswith("AWS::IAM::")
    for key in ("Principal", "NotPrincipal") if own else ():
        if key in body:
            found = f"{key} in the policy of a role or user: IAM refuses it"
            yield _wrong(resource, (*path, key), found, "remove it")
    for key in ("Resource", "NotResource") if name == _TRUST else ():
        if key in body:
            found = f"{key} in a trust policy, which is for its role alone: IAM refuses it"
            yield _wrong(resource, (*path, key), found, "remove it")
    sid = body.get("Sid")
    of_iam = name == _TRUST or own
    if of_iam and isinstance(sid, str) and not is_placeholder(sid) and not _SID.fullmatch(sid):
        found = f"{shown(sid)} is no Sid: IAM refuses it"
        yield _wrong(resource, (*path, "Sid"), found, "use letters and digits alone")


def _actions(resource: Resource, path: Path, value: Json) -> Iterator[Finding]:
    for each in [value] if isinstance(value, str) else items(value) or []:
        unknown = isinstance(each, dict) or (isinstance(each, str) and is_placeholder(each))
        if not unknown and not (isinstance(each, str) and _ACTION.fullmatch(each)):
            yield _wrong(resource, path, f"{shown(each)} is no action", "write it as s3:GetObject")
        elif isinstance(each, str) and not unknown:
            yield from _known(resource, path, each)


def _known(resource: Resource, path: Path, action: str) -> Iterator[Finding]:
    """Find an action that is nearly one of its service; new ones come every month."""
    service, _, name = action.partition(":")
    by_kinds = table(RESOURCES).get(service.lower())
    if not isinstance(by_kinds, dict):
        return
    # IAM compares them in small letters; what is to be written is as AWS writes it.
    known = {str(each).lower(): str(each) for listed in by_kinds.values() for each in listed}
    if "*" in name or "?" in name:
        yield from _pattern(resource, path, action, known)
        return
    if name.lower() in known:
        return
    close = get_close_matches(name.lower(), known, 1, _CLOSE)
    other = _PERMISSIONS.get(name.lower()) if service.lower() == "s3" else None
    meant = other or next((known[each] for each in close), None)
    if meant:
        found = f"{service} has no action {shown(name)}, so this allows nothing"
        yield _wrong(resource, path, found, f"did you mean {service}:{meant}?")


def _pattern(
    resource: Resource, path: Path, action: str, known: dict[str, str]
) -> Iterator[Finding]:
    """Find a pattern that no action of its service is like."""
    service, _, name = action.partition(":")
    if not fnfilter(known, name.lower()):
        close = get_close_matches(name.strip("*").lower(), known, 1, _CLOSE_PATTERN)
        found = f"no action of {service} is like {shown(name)}, so this allows nothing"
        remedy = f"did you mean {service}:{known[close[0]]}*?" if close else "correct or remove it"
        yield _wrong(resource, path, found, remedy)


def _resources(resource: Resource, path: Path, body: dict[str, Json]) -> Iterator[Finding]:
    listed, names = _strings(body.get("Resource")), _strings(body.get("Action"))
    for each in listed:
        if not each.startswith("arn:") and each != "*" and not is_placeholder(each):
            remedy = "write an ARN, such as arn:aws:s3:::BUCKET/*"
            yield _wrong(resource, path, f"{shown(each)} is no ARN", remedy)
    of_objects = [each for each in names if OF_OBJECTS.fullmatch(each)]
    every = _arns(body.get("Resource"))
    paths = any(OF_A_PATH.search(each or "") for each in every)
    if of_objects and not paths and every and all(_BUCKET.fullmatch(e or "") for e in every):
        found = f"{of_objects[0]} on buckets, and it works on objects"
        yield _wrong(resource, path, found, f"add {every[0]}/*")


def _arns(value: Json) -> list[str | None]:
    """Return the texts of the resources of a statement; None for what cannot be known."""
    every = value if isinstance(value, list) else [value]
    return [written(each) for each in every if not is_absent(each)]


def _strings(value: Json) -> list[str]:
    return [
        each
        for each in ([value] if isinstance(value, str) else items(value) or [])
        if isinstance(each, str)
    ]


def _principals(resource: Resource, path: Path, body: dict[str, Json]) -> Iterator[Finding]:
    for key, value in body.items():
        if key not in _PRINCIPALS:
            remedy = f"known: {', '.join(sorted(_PRINCIPALS))}"
            yield _wrong(resource, (*path, key), f"a principal has no {shown(key)}", remedy)
        if key != "Service":
            continue
        for each in [value] if isinstance(value, str) else items(value) or []:
            if isinstance(each, str) and not _SERVICE.fullmatch(each) and not is_placeholder(each):
                found = f"{shown(each)} is no service of AWS"
                yield _wrong(resource, (*path, key), found, f"write it as {_meant(each)}")


def _meant(service: str) -> str:
    """Return a name of a service in the form that AWS's have, by its own first word."""
    first = service.partition(".")[0]
    return f"{first if _WORD.fullmatch(first) else 'eks'}.amazonaws.com"
