"""Rules over the conditions under which pods take a role."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.policies import ROLE, parsed, statements, words
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import (
    is_absent,
    is_placeholder,
    items,
    mapping,
    shown,
    text,
    written,
)

_TRUST = "AssumeRolePolicyDocument"
_PODS = "pods.eks.amazonaws.com"
_TAG = "aws:requesttag/"
# EKS User Guide, "Grant Pods access to AWS resources based on tags".
_TAGS = {
    "kubernetes-namespace": "Namespace",
    "kubernetes-service-account": "ServiceAccount",
    "eks-cluster-name": "ClusterName",
}
_OTHER_TAGS = frozenset({"eks-cluster-arn", "kubernetes-pod-name", "kubernetes-pod-uid"})
_EQUAL = re.compile(r"(ForAnyValue:)?(StringEquals(IgnoreCase)?|StringLike)(IfExists)?")
_AUDIENCE = "sts.amazonaws.com"
_WEB = "sts:AssumeRoleWithWebIdentity"
# What people put before the address: the ARN's beginning, or the URL's.
_BEFORE = re.compile(r"^(arn:.*:oidc-provider/|https?://)")
# The attribute of a cluster is a URL.
_ISSUER = ".OpenIdConnectIssuerUrl}"
_BY_URL = re.compile(r":oidc-provider/(https?://|\$\{[^}]+\.OpenIdConnectIssuerUrl\})")
_VARIABLE = re.compile(r"\$\{([A-Za-z0-9.]+)\}(?=:)")
_SUBJECT = re.compile(r"system:serviceaccount:[^:\s]+:[^:\s]+")


def tags(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a role's conditions what EKS Pod Identity sends for the pods that take it.

    EKS User Guide, "EKS Pod Identity role" and "Grant Pods access to AWS resources based on tags":
    the namespace, account and cluster travel as tags, and another value is AccessDenied.
    """
    for identity in templates.resources("AWS::EKS::PodIdentityAssociation"):
        role = templates.target(identity.properties.get("RoleArn"), identity.file)
        if role is None or role.type != ROLE:
            continue
        trusting = [
            (index, body)
            for index, body in enumerate(statements(role.properties.get(_TRUST)) or [])
            if _PODS in words((mapping(body.get("Principal")) or {}).get("Service"))
            and body.get("Effect") == "Allow"
        ]
        found = [_difference(index, body, identity, templates) for index, body in trusting]
        # One statement that lets these pods in is enough.
        if found and None not in found and found[0] is not None:
            path, said, remedy = found[0]
            yield role.find(Code.ROLE_TRUST, path, said, remedy)


def _difference(
    index: int, body: "dict[str, Json]", identity: Resource, templates: TemplateSet
) -> tuple[Path, str, str] | None:
    for operator, value in (mapping(body.get("Condition")) or {}).items():
        if not _EQUAL.fullmatch(operator):
            continue
        for key, wanted in (mapping(value) or {}).items():
            name = key.lower().removeprefix(_TAG) if key.lower().startswith(_TAG) else ""
            own = _sent(_TAGS[name], identity, templates) if name in _TAGS else None
            listed = [wanted] if not isinstance(wanted, list) else wanted
            texts = [text(each) for each in listed]
            if own is None or None in texts or any(is_placeholder(each or "") for each in texts):
                continue
            if not any(fnmatchcase(own, each or "") for each in texts):
                path = (_TRUST, "Statement", index, "Condition", operator, key)
                found = f"{shown(texts[0])}, and {identity.id} is for {shown(own)}: AccessDenied"
                return path, found, f"write {own} here, or change {identity.id}"
    return None


def _sent(key: str, identity: Resource, templates: TemplateSet) -> str | None:
    """Return what a pod of an association sends, if it is written out."""
    value = templates.default(identity.properties.get(key), identity.file)
    cluster = templates.target(value, identity.file)
    if key == "ClusterName" and cluster is not None:
        value = templates.default(cluster.properties.get("Name"), cluster.file)
    name = text(value)
    return None if name is None or is_placeholder(name) else name


def web_identity(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a role for service accounts the one action, audience and subject that it needs.

    EKS User Guide, "Assign IAM roles to Kubernetes service accounts"; IAM User Guide, "Create a
    role for OpenID Connect federation": STS answers AccessDenied or InvalidIdentityToken.
    """
    for role in templates.resources(ROLE):
        document = role.properties.get(_TRUST)
        for index, body in enumerate(statements(document) or []):
            provider = (mapping(body.get("Principal")) or {}).get("Federated")
            if is_absent(provider) or not _is_of_eks(provider, body, document):
                continue
            path: Path = (_TRUST, "Statement", index)
            actions = words(body.get("Action"))
            wrong = actions and not any(fnmatchcase(_WEB, each) for each in actions)
            if wrong and body.get("Effect") == "Allow":
                found = f"{actions[0]} for a federated provider: service accounts call {_WEB}"
                yield role.find(Code.ROLE_TRUST, (*path, "Action"), found, f"allow {_WEB}")
            arn = written(provider)
            by_url = _BY_URL.search(arn or "")
            if arn is not None and by_url:
                found = f"{shown(arn)} has the URL's https://, and ARNs of providers have none"
                remedy = "write oidc-provider/oidc.eks.REGION... without https://"
                yield role.find(Code.ROLE_TRUST, (*path, "Principal"), found, remedy)
            elif arn is not None and (arn.startswith("https://") or arn.endswith(_ISSUER)):
                found = f"{shown(arn)} as the provider, and IAM takes its ARN"
                remedy = "write arn:aws:iam::ACCOUNT:oidc-provider/oidc.eks.REGION..."
                yield role.find(Code.ROLE_TRUST, (*path, "Principal"), found, remedy)
            yield from _conditions(role, (*path, "Condition"), body)
            yield from _variables(role, (*path, "Condition"), body)


def _variables(role: Resource, path: Path, body: "dict[str, Json]") -> Iterator[Finding]:
    """Find a key that begins with what Fn::Sub puts in, where that is the issuer's whole URL."""
    document = role.properties.get(_TRUST)
    given = document.get("Fn::Sub") if isinstance(document, dict) else None
    named = given[1] if isinstance(given, list) and len(given) > 1 else {}
    for operator, value in (mapping(body.get("Condition")) or {}).items():
        for key in mapping(value) or {}:
            match = _VARIABLE.match(key)
            own = named.get(match[1]) if match and isinstance(named, dict) else None
            said = written(own) if own is not None else match[0] if match else None
            if said is not None and said.endswith(_ISSUER):
                found = f"{shown(key)} is the issuer's URL with its https://, and keys begin with "
                found += "the plain address: no pod gets the role"
                remedy = 'write Fn::Select [1, Fn::Split ["https://", ...]] for it'
                yield role.find(Code.ROLE_TRUST, (*path, operator, key), found, remedy)
                return


def providers(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a cluster's identity provider a URL, and the audience of the tokens of pods.

    EKS User Guide, "Create an IAM OIDC provider for your cluster": STS answers InvalidIdentityToken
    ("Incorrect token audience"); IAM API, CreateOpenIDConnectProvider.Url begins with https://.
    """
    for provider in templates.resources("AWS::IAM::OIDCProvider"):
        url = provider.properties.get("Url")
        cluster = templates.target(url, provider.file)
        plain = text(templates.default(url, provider.file))
        if plain is not None and not plain.startswith("https://") and not is_placeholder(plain):
            found = f"{shown(plain)} does not begin with https://: IAM refuses the provider"
            yield provider.find(
                Code.ROLE_TRUST, ("Url",), found, f"write https://{plain.removeprefix('http://')}"
            )
        of_eks = cluster is not None and cluster.type == "AWS::EKS::Cluster"
        listed = [text(each) for each in items(provider.properties.get("ClientIdList")) or []]
        known = None not in listed and items(provider.properties.get("ClientIdList")) is not None
        if known and (of_eks or "oidc.eks." in (written(url) or "")) and _AUDIENCE not in listed:
            said = f"for {shown(listed[0])}" if listed else "for nobody"
            found = f"{said}, and tokens of EKS are for {_AUDIENCE}: no pod gets a role"
            remedy = f"write {_AUDIENCE}"
            yield provider.find(Code.ROLE_TRUST, ("ClientIdList",), found, remedy)


def _is_of_eks(provider: Json, body: "dict[str, Json]", document: Json) -> bool:
    said = f"{provider}{body.get('Condition')}"
    return "oidc.eks" in said or "oidc-provider" in said or parsed(document) is not document


def _key(role: Resource, path: Path, body: "dict[str, Json]") -> Iterator[Finding]:
    """Require of a condition's key the provider's address, which is the end of its ARN.

    IAM User Guide, "Available keys for AWS OIDC federation"; karpenter-provider-aws issue 1666.
    """
    key = str(path[-1])
    address, colon, claim = key.rpartition(":")
    if not colon or claim not in {"aud", "sub", "amr"} or address.startswith("$"):
        return
    provider = written((mapping(body.get("Principal")) or {}).get("Federated")) or ""
    own = provider.partition(":oidc-provider/")[2]
    short = _BEFORE.sub("", address)
    if short != address:
        before = "an ARN" if address.startswith("arn:") else "a URL"
        found = f"{before} as a key, and keys begin with the provider's plain address: no pod gets "
        found += "the role"
        yield role.find(Code.ROLE_TRUST, path, found, f"write {short}:{claim}")
    elif own and "$" not in own + address and own != address and "oidc.eks." in address:
        found = f"the key of {shown(address)}, and the statement trusts {shown(own)}: no pod gets "
        found += "the role"
        yield role.find(Code.ROLE_TRUST, path, found, f"write {own}:{claim}")


def _conditions(role: Resource, path: Path, body: "dict[str, Json]") -> Iterator[Finding]:
    for operator, value in (mapping(body.get("Condition")) or {}).items():
        for key, given in (mapping(value) or {}).items():
            yield from _key(role, (*path, operator, key), body)
            for each in given if isinstance(given, list) else [given]:
                name = text(each)
                if name is None or (is_placeholder(name) and not key.endswith(":aud")):
                    continue
                place = (*path, operator, key)
                if key.endswith(":aud") and not is_placeholder(name) and "amazonaws" not in name:
                    found = f"audience {shown(name)}, and tokens of EKS are for sts.amazonaws.com"
                    yield role.find(Code.ROLE_TRUST, place, found, "write sts.amazonaws.com")
                if not key.endswith(":sub"):
                    continue
                if not _SUBJECT.fullmatch(name) and not name.startswith("*"):
                    found = f"subject {shown(name)}, which no service account has"
                    remedy = "write system:serviceaccount:NAMESPACE:NAME"
                    yield role.find(Code.ROLE_TRUST, place, found, remedy)
                elif "*" in name and operator.startswith("StringEquals"):
                    found = f"{shown(name)} under {operator}, where * is a plain character"
                    remedy = "use StringLike, or write the name out"
                    yield role.find(Code.ROLE_TRUST, place, found, remedy)
