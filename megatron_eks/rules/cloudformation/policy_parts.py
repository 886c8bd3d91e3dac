"""Rules over parts of a policy document that are there, and empty or of no meaning to IAM."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.policy_documents import documents_of
from megatron_eks.rules.policies import parsed
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, is_intrinsic, is_placeholder, items, mapping, shown

_LISTS = ("Action", "NotAction", "Resource", "NotResource")
_WHOM = ("Principal", "NotPrincipal")
_CLOSE = 0.85
_TRUTH = re.compile(r"(For(AllValues|AnyValue):)?(Bool|Null)(IfExists)?")
# IAM User Guide, "AWS global condition context keys", read 2026-11.
_GLOBAL = (
    *("CalledVia", "CalledViaFirst", "CalledViaLast", "CurrentTime", "Ec2InstanceSourceVpc"),
    *("Ec2InstanceSourcePrivateIPv4", "EpochTime", "FederatedProvider", "MultiFactorAuthAge"),
    *("MultiFactorAuthPresent", "PrincipalAccount", "PrincipalArn", "PrincipalIsAWSService"),
    *("PrincipalOrgID", "PrincipalOrgPaths", "PrincipalServiceName", "PrincipalServiceNamesList"),
    *("PrincipalType", "Referer", "RequestedRegion", "ResourceAccount", "ResourceOrgID"),
    *("ResourceOrgPaths", "SecureTransport", "SourceAccount", "SourceArn", "SourceIdentity"),
    *("SourceIp", "SourceOrgID", "SourceOrgPaths", "SourceVpc", "SourceVpce", "SourceVpcArn"),
    *("TagKeys", "TokenIssueTime", "UserAgent", "ViaAWSService", "VpceAccount", "VpceOrgID"),
    *("VpceOrgPaths", "VpcSourceIp", "userid", "username"),
)
_KNOWN = {each.lower(): each for each in _GLOBAL}


def emptied(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse statements, actions, resources and principals that are there and empty.

    IAM User Guide, "Grammar of the IAM JSON policy language": each list has one element or more;
    IAM, S3 and KMS answer MalformedPolicyDocument when the stack is under way.
    """
    for resource in templates.everything():
        for path, _, value in documents_of(resource):
            body = mapping(parsed(value)) or {}
            if isinstance(value, str) and not value.lstrip().startswith("{") and _is_known(value):
                found = "a text that is no policy: the service refuses it"
                yield resource.find(Code.POLICY, path, found, "write Version and Statement")
            listed = body.get("Statement")
            if listed == {}:
                yield _empty(resource, (*path, "Statement"), "no statement in it", "a statement")
            bodies = [listed] if isinstance(listed, dict) else items(listed) or []
            for index, each in enumerate(bodies):
                place: Path = (*path, "Statement", index)
                if isinstance(each, str) and _is_known(each):
                    found = "a text as a statement: the service refuses the policy"
                    remedy = "write Effect, Action and what belongs to them"
                    yield resource.find(Code.POLICY, place, found, remedy)
                if each == {}:
                    yield _empty(resource, place, "an empty statement", "Effect and Action")
                yield from _parts(resource, place, mapping(each) or {})
                yield from _texts(resource, place, mapping(each) or {})


def _parts(resource: Resource, path: Path, body: "dict[str, Json]") -> Iterator[Finding]:
    for key in (*_LISTS, *_WHOM):
        given = body.get(key)
        if given in ({}, ""):
            wanted = "an action" if "Action" in key else "an ARN" if "Resource" in key else "whom"
            yield _empty(resource, (*path, key), f"an empty {key}", wanted)
        for index, each in enumerate(items(given) or [] if isinstance(given, list) else []):
            if each in ({}, ""):
                wanted = "an action" if "Action" in key else "an ARN"
                yield _empty(resource, (*path, key, index), f"nothing in {key}", wanted)
    for key in _WHOM:
        for kind, given in (mapping(body.get(key)) or {}).items():
            if given in ([], {}, ""):
                yield _empty(resource, (*path, key, kind), f"nobody under {kind}", "whom")


def _is_known(value: str) -> bool:
    return not is_placeholder(value) and "$" not in value


def _texts(resource: Resource, path: Path, body: "dict[str, Json]") -> Iterator[Finding]:
    for key in _WHOM:
        whom = body.get(key)
        if isinstance(whom, str) and whom not in ("", "*") and _is_known(whom):
            found = f"{shown(whom)} as {key}: the service refuses the policy"
            own = "Service" if whom.endswith((".amazonaws.com", ".aws")) else "AWS"
            remedy = f"write {key}: {{{own}: {whom}}}"
            yield resource.find(Code.POLICY, (*path, key), found, remedy)
    if isinstance(body.get("Condition"), str):
        found = "a text as Condition: the service refuses the policy"
        remedy = "write an operator, such as StringEquals, and below it the key"
        yield resource.find(Code.POLICY, (*path, "Condition"), found, remedy)


def _empty(resource: Resource, path: Path, found: str, wanted: str) -> Finding:
    said = f"{found}: the service refuses the policy"
    return resource.find(Code.POLICY, path, said, f"name {wanted}, or remove what is empty")


def conditions(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a condition a key that AWS sends, and a value that it may have.

    IAM User Guide, "AWS global condition context keys" and "Condition operators": a key that
    nobody sends is never met, and Bool and Null compare with true and false alone.
    """
    for resource in templates.everything():
        for path, _, value in documents_of(resource):
            listed = (mapping(parsed(value)) or {}).get("Statement")
            bodies = [listed] if isinstance(listed, dict) else items(listed) or []
            for index, each in enumerate(bodies):
                tests = mapping((mapping(each) or {}).get("Condition")) or {}
                place: Path = (*path, "Statement", index, "Condition")
                for operator, keys in tests.items():
                    for key, wanted in (mapping(keys) or {}).items():
                        here = (*place, operator, key)
                        yield from _test(resource, here, operator, key, wanted)


def _test(
    resource: Resource, path: Path, operator: str, key: str, wanted: Json
) -> Iterator[Finding]:
    # IAM reads names of keys in any case; behind a slash is a tag's own name.
    head, _, name = key.partition(":")
    plain = name.lower()
    if head.lower() == "aws" and "/" not in name and plain not in _KNOWN:
        close = get_close_matches(plain, _KNOWN, 1, _CLOSE)
        if close and not is_placeholder(key):
            found = f"AWS sends no {shown(key)}, so the condition is never met"
            remedy = f"did you mean aws:{_KNOWN[close[0]]}?"
            yield resource.find(Code.POLICY, path, found, remedy, Level.WARNING)
    for each in wanted if isinstance(wanted, list) else [wanted]:
        known = isinstance(each, bool) or str(each).lower() in {"true", "false"}
        unknown = is_intrinsic(each) or (isinstance(each, str) and is_placeholder(each))
        if _TRUTH.fullmatch(operator) and not known and not unknown and not is_absent(each):
            found = f"{operator} compares with true or false, and not with {shown(each)}"
            yield resource.find(Code.POLICY, path, found, 'write "true" or "false"')
