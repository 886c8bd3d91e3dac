"""Rules over conditions of policies whose sense is the opposite of what they are written for."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Literal

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import statements
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import is_absent, items, mapping, truth

_DOCUMENTS = (
    *("AssumeRolePolicyDocument", "FileSystemPolicy", "KeyPolicy", "PolicyDocument"),
    *("RepositoryPolicyText", "ResourcePolicy"),
)

# (effect, operator) of a key, and what it says; a value of truth is added to Bool and Null.
# IAM User Guide, "AWS global condition context keys"; S3 User Guide, "Bucket policy examples".
_Sense = tuple[Literal["Allow", "Deny"], str, str, str]
_INVERTED: dict[str, tuple[_Sense, ...]] = {
    "aws:securetransport": (
        ("Deny", "Bool true", "denies what comes over TLS, and lets all else pass", '"false"'),
        ("Allow", "Bool false", "allows only what does not come over TLS", '"true"'),
    ),
    "s3:tlsversion": (
        ("Deny", "NumericGreaterThan", "denies the newer versions of TLS", "NumericLessThan"),
        ("Deny", "NumericGreaterThanEquals", "denies the newer versions of TLS", "NumericLessThan"),
        (
            "Allow",
            "NumericLessThan",
            "allows the older versions of TLS",
            "NumericGreaterThanEquals",
        ),
    ),
    "aws:multifactorauthpresent": (
        ("Deny", "Bool true", "denies those who have shown a second factor", '"false"'),
    ),
    "s3:x-amz-server-side-encryption": (
        ("Deny", "Null false", "denies uploads that ask for encryption", '"true"'),
    ),
    "aws:principalorgid": (
        ("Deny", "StringEquals", "denies the organization itself", "StringNotEquals"),
        ("Allow", "StringNotEquals", "allows all but the organization", "StringEquals"),
    ),
    "aws:sourcevpce": (
        ("Deny", "StringEquals", "denies what comes through the endpoint", "StringNotEquals"),
        ("Allow", "StringNotEquals", "allows all but the endpoint", "StringEquals"),
    ),
    "aws:sourcevpc": (
        ("Deny", "StringEquals", "denies what comes from the VPC", "StringNotEquals"),
        ("Allow", "StringNotEquals", "allows all but the VPC", "StringEquals"),
    ),
    "aws:sourceaccount": (
        ("Deny", "StringEquals", "denies the account itself", "StringNotEquals"),
        ("Allow", "StringNotEquals", "allows all but the account", "StringEquals"),
    ),
    "aws:sourcearn": (
        ("Allow", "ArnNotLike", "allows all but what is named", "ArnLike"),
        ("Allow", "ArnNotEquals", "allows all but what is named", "ArnEquals"),
    ),
    "aws:sourceip": (("Allow", "NotIpAddress", "allows every address but these", "IpAddress"),),
    "aws:principalisawsservice": (
        ("Deny", "Bool true", "denies AWS's own services, and nobody else", '"false"'),
    ),
    "aws:requestedregion": (
        ("Allow", "StringNotEquals", "allows all regions but these", "StringEquals"),
    ),
}
_ANYBODY: tuple[Json, ...] = ("*", {"AWS": "*"})
_PRIVATE = tuple(IPv4Network(each) for each in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
# Nobody means these: the opposite of encryption in transit is never wanted.
_CERTAIN = frozenset({"aws:securetransport", "s3:tlsversion"})


def inverted(templates: TemplateSet) -> Iterator[Finding]:
    """Find conditions that deny what they are written to require, or allow what they forbid.

    IAM User Guide, "IAM JSON policy elements: Condition operators" and "AWS global condition
    context keys". With a second condition beside it, a statement may well mean what it says.
    """
    for resource in templates.everything():
        for path, document in _documents(dict(resource.properties), ()):
            for index, body in enumerate(statements(document) or []):
                place = (*path, "Statement", index, "Condition")
                pairs = list(_pairs(body))
                for operator, key, value in pairs:
                    where = (*place, operator, key)
                    if key.lower() == "aws:sourceip" and _is_private(value):
                        found = "an address inside a VPC, which no request shows as its source"
                        remedy = "use aws:VpcSourceIp, or aws:SourceVpce"
                        yield resource.find(Code.POLICY, where, found, remedy, Level.WARNING)
                    sense = _sense(body.get("Effect"), operator, key, value)
                    # Whoever allows everybody is told so elsewhere, whatever the condition.
                    anybody = body.get("Effect") == "Allow" and body.get("Principal") in _ANYBODY
                    if sense is not None and len(pairs) == 1 and not anybody:
                        found, instead = sense
                        certain = key.lower() in _CERTAIN
                        level = Level.ERROR if certain else Level.WARNING
                        remedy = f"write {instead}"
                        yield resource.find(Code.POLICY, where, found, remedy, level)


def _documents(value: Json, path: Path) -> Iterator[tuple[Path, Json]]:
    """Return the policies of a resource, with those that it holds inside."""
    for key, each in (mapping(value) or {}).items():
        if key in _DOCUMENTS:
            yield (*path, key), each
        elif key == "Policies":
            for index, inner in enumerate(items(each) or []):
                yield from _documents(inner, (*path, key, index))


def _pairs(body: "dict[str, Json]") -> Iterator[tuple[str, str, Json]]:
    for operator, value in (mapping(body.get("Condition")) or {}).items():
        for key, wanted in (mapping(value) or {}).items():
            yield operator, key, wanted


def _sense(effect: Json, operator: str, key: str, value: Json) -> tuple[str, str] | None:
    """Return what a condition says and what to write, where it says the opposite."""
    plain = operator.removeprefix("ForAnyValue:").removesuffix("IfExists")
    plain = plain.replace("StringLike", "StringEquals").replace("StringNotLike", "StringNotEquals")
    first = value[0] if isinstance(value, list) and len(value) == 1 else value
    if plain in {"Bool", "Null"} and not is_absent(first):
        plain = f"{plain} {'true' if truth(first) else 'false'}" if truth(first) is not None else ""
    for wanted, wrong, found, instead in _INVERTED.get(key.lower(), ()):
        if (effect, plain) == (wanted, wrong):
            return found, instead
    return None


def _is_private(value: Json) -> bool:
    """Tell addresses that are all private: requests come from public ones, or through endpoints."""
    listed = value if isinstance(value, list) else [value]
    try:
        networks = [IPv4Network(str(each), strict=False) for each in listed]
    except ValueError:
        return False
    return bool(networks) and all(any(each.subnet_of(own) for own in _PRIVATE) for each in networks)
