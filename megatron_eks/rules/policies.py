"""Reads the IAM policies of templates: what they grant without a condition, and to whom."""

import json
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text

if TYPE_CHECKING:
    from megatron_eks.config.errors import Path
    from megatron_eks.config.load import Json
    from megatron_eks.rules.template_set import Resource, TemplateSet

ROLE = "AWS::IAM::Role"
_POLICIES = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy")
HOLDERS = (*_POLICIES, ROLE)

_PODS = "pods.eks.amazonaws.com"
# Where the identity providers of EKS clusters are, for roles of service accounts.
_SERVICE_ACCOUNTS = "oidc.eks."

# EKS User Guide, "Amazon EKS node IAM role".
WORKER = ("AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy")
REGISTRY = (
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonEC2ContainerRegistryReadOnly",
    "AmazonEC2ContainerRegistryPowerUser",
    "AmazonEC2ContainerRegistryFullAccess",
)
_KNOWN = (
    *WORKER,
    *REGISTRY,
    *("AmazonEKS_CNI_Policy", "AmazonEKSClusterPolicy", "AmazonEKSVPCResourceController"),
    *("AmazonEKSServicePolicy", "AmazonEKSComputePolicy", "AmazonEKSNetworkingPolicy"),
    *("AmazonEKSLoadBalancingPolicy", "AmazonEKSBlockStoragePolicy"),
    "AmazonEKSFargatePodExecutionRolePolicy",
)
_CLOSE = 0.92
_A_WORD = 8


def granted(holder: "Resource") -> "Iterator[tuple[Path, dict[str, Json]]]":
    """Return the statements by which a role or policy allows something, each with its place."""
    documents: list[tuple[Path, Json]] = [
        (("PolicyDocument",), holder.properties.get("PolicyDocument"))
    ]
    for index, value in enumerate(items(holder.properties.get("Policies")) or []):
        inline = (mapping(value) or {}).get("PolicyDocument")
        documents.append((("Policies", index, "PolicyDocument"), inline))
    for path, document in documents:
        for index, body in enumerate(statements(document) or []):
            if body.get("Effect") == "Allow" and is_absent(body.get("Condition")):
                yield (*path, "Statement", index), body


def subjects(templates: "TemplateSet") -> "dict[str, tuple[str, ...]]":
    """Return the service accounts that may take each role that has a name; unknown ones are absent.

    IAM User Guide, "Create a role for OpenID Connect federation": the condition's key ends in :sub.
    """
    found: dict[str, tuple[str, ...] | None] = {}
    for role in templates.resources(ROLE):
        name = text(templates.default(role.properties.get("RoleName"), role.file))
        if name is not None and not is_placeholder(name):
            found[name] = None if name in found else _subjects(role)
    return {name: listed for name, listed in found.items() if listed}


def _subjects(role: "Resource") -> tuple[str, ...] | None:
    listed: list[str] = []
    trust = statements(role.properties.get("AssumeRolePolicyDocument"))
    if trust is None or "Condition" in role.body:
        return None
    for body in trust:
        principal = mapping(body.get("Principal")) or {}
        if principal.keys() == {"Service"} or body.get("Effect") != "Allow":
            continue
        condition = mapping(body.get("Condition")) or {}
        given = [
            each
            for operator in ("StringEquals", "StringLike")
            for key, value in (mapping(condition.get(operator)) or {}).items()
            if key.endswith(":sub")
            for each in (value if isinstance(value, list) else [value])
        ]
        names = [name for each in given if (name := text(each)) and not is_placeholder(name)]
        if not given or len(names) < len(given) or set(condition) - {"StringEquals", "StringLike"}:
            return None
        listed += names
    return tuple(listed)


def of_pods(templates: "TemplateSet") -> "set[Resource]":
    """Return the roles that pods take, and the policies attached to these.

    Pods take a role by EKS Pod Identity, or by the identity provider of their service accounts.
    """
    roles = {role for role in templates.resources(ROLE) if _taken_by_pods(role)}
    attached = {
        policy
        for policy in templates.resources(*_POLICIES)
        for reference in [
            *(items(policy.properties.get("Roles")) or []),
            policy.properties.get("RoleName"),
        ]
        if templates.target(reference, policy.file) in roles
    }
    return roles | attached


def _taken_by_pods(role: "Resource") -> bool:
    for statement in statements(role.properties.get("AssumeRolePolicyDocument")) or []:
        principal = mapping(statement.get("Principal")) or {}
        provider = principal.get("Federated")
        if _PODS in words(principal.get("Service")) or _SERVICE_ACCOUNTS in json.dumps(provider):
            return True
    return False


def statements(document: "Json") -> "list[dict[str, Json]] | None":
    """Return the statements of a policy, one or a list of them; None if one cannot be known."""
    value = (mapping(parsed(document)) or {}).get("Statement")
    listed = [value] if isinstance(value, dict) else items(value)
    bodies = [mapping(each) for each in listed or []]
    found = [each for each in bodies if each]
    return found if found and len(found) == len(bodies) else None


def parsed(document: "Json") -> "Json":
    """Return a policy that is written as one text of JSON, as what it says."""
    inner = document.get("Fn::Sub") if isinstance(document, dict) else document
    first = inner[0] if isinstance(inner, list) and inner else inner
    if not isinstance(first, str) or not first.lstrip().startswith("{"):
        return document
    try:
        value: Json = json.loads(first)
    except ValueError:
        return document
    return value


def words(value: "Json") -> list[str]:
    """Return the texts of one text or a list of them."""
    every = [value] if isinstance(value, str) else items(value) or []
    return [word for word in every if isinstance(word, str)]


def unknown_policy(name: str) -> tuple[str, str] | None:
    """Say that AWS has no policy of a name that is nearly one of those for EKS, and which it is."""
    close = _near(name) if name and name not in _KNOWN else []
    return (f"AWS has no policy {shown(name)}", f"did you mean {close[0]}?") if close else None


def _near(name: str) -> list[str]:
    """Return the policy that is meant: one with a word more or less before one with others."""
    parts = [each for each in _KNOWN if name.startswith(each) or each.startswith(name)]
    whole = [each for each in parts if abs(len(each) - len(name)) <= _A_WORD]
    return sorted(whole, key=len)[-1:] or get_close_matches(name, _KNOWN, 1, _CLOSE)


def policy_name(value: "Json") -> str | None:
    """Return the name at the end of an AWS managed policy's ARN, also one that is joined."""
    if isinstance(value, dict) and len(value) == 1:
        inner = value.get("Fn::Sub", value.get("Fn::Join"))
        if isinstance(inner, list) and inner:
            parts = inner[-1] if "Fn::Join" in value else inner[0]
            inner = parts[-1] if isinstance(parts, list) and parts else parts
        value = inner
    written = text(value)
    return written.rpartition("/")[2] if written and "/" in written else None
