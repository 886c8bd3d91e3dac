"""Rules over who may do what: access entries, trust, policies of repositories, buckets and keys."""

import json
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.policies import ROLE, of_pods, statements, words
from megatron_eks.rules.values import is_absent, items, mapping, shown, text, truth, written

if TYPE_CHECKING:
    from megatron_eks.config.load import Json
    from megatron_eks.rules.template_set import Resource, TemplateSet

_CLOSE = 0.9
# EKS User Guide, "Review access policy permissions", read 2026-11.
_ACCESS_POLICIES = (
    *("AmazonEKSAdminPolicy", "AmazonEKSAdminViewPolicy", "AmazonEKSAutoNodePolicy"),
    *("AmazonEKSClusterAdminPolicy", "AmazonEKSEditPolicy", "AmazonEKSSecretReaderPolicy"),
    *("AmazonEKSViewPolicy", "AmazonEKSClusterInsightsPolicy", "AmazonEKSHybridPolicy"),
    *("AmazonEKSBlockStoragePolicy", "AmazonEKSBlockStorageClusterPolicy"),
    *("AmazonEKSComputePolicy", "AmazonEKSComputeClusterPolicy"),
    *("AmazonEKSLoadBalancingPolicy", "AmazonEKSLoadBalancingClusterPolicy"),
    *("AmazonEKSNetworkingPolicy", "AmazonEKSNetworkingClusterPolicy"),
    *("AmazonAIOpsAssistantPolicy", "AmazonARCRegionSwitchScalingPolicy"),
)
_FOR_PEOPLE = (
    *("AmazonEKSClusterAdminPolicy", "AmazonEKSAdminPolicy", "AmazonEKSAdminViewPolicy"),
    *("AmazonEKSEditPolicy", "AmazonEKSViewPolicy"),
)
# Every documented name starts so; a newer one is not known here.
_FAMILIES = ("AWS", "Amazon")
# Policies of IAM, with what comes closest to them among those of EKS.
_OF_IAM = {
    "AdministratorAccess": "AmazonEKSClusterAdminPolicy",
    "PowerUserAccess": "AmazonEKSEditPolicy",
    "ReadOnlyAccess": "AmazonEKSViewPolicy",
    "ViewOnlyAccess": "AmazonEKSViewPolicy",
    "AmazonEKSClusterPolicy": "AmazonEKSClusterAdminPolicy",
    "AmazonEKSWorkerNodePolicy": "AmazonEKSAutoNodePolicy",
}
_ACCESS_POLICY = re.compile(r'eks::aws:cluster-access-policy/(?P<name>[A-Za-z0-9_.-]+)["\]} ]*')
# EKS API, CreateAccessEntry.type: those of nodes.
_OF_NODES = ("_LINUX", "_WINDOWS")
# The partition may be a part that only CloudFormation knows.
_OF_A_SESSION = re.compile(r"arn:([a-z-]+|\$\{[^}]*\}):sts:")
_KEPT_GROUPS = ("system:", "eks:", "aws:", "amazon:", "iam:")
_POLICY_OF_A_RESOURCE = (
    ("AWS::ECR::Repository", "RepositoryPolicyText"),
    ("AWS::KMS::Key", "KeyPolicy"),
    ("AWS::S3::BucketPolicy", "PolicyDocument"),
)
_TOO_WIDE = {
    "AdministratorAccess": "the whole account",
    "PowerUserAccess": "nearly the whole account",
    "AmazonS3FullAccess": "every bucket of the account",
}
_OF_THE_CDK = "Custom::AWSCDK-EKS-Cluster"
_KEPT_NAMES = ("system:", "eks:", "aws:", "amazon:", "iam:")
_AGENT = "eks-pod-identity-agent"


def access_entries(templates: "TemplateSet") -> Iterator[Finding]:
    """Require access policies that exist, with their scope, and groups that EKS lets people use.

    EKS User Guide, "Associate access policies with access entries"; EKS API, CreateAccessEntry.
    """
    for entry in templates.resources("AWS::EKS::AccessEntry"):
        yield from _mode(entry, templates)
        who = written(templates.default(entry.properties.get("PrincipalArn"), entry.file)) or ""
        whole = who.startswith("arn:") and who.endswith(":root")
        if whole or _OF_A_SESSION.match(who):
            what = "the account, and an entry is for one role or user"
            found = f"{shown(who)} is {what if whole else 'a session, and EKS refuses the entry'}"
            remedy = "name the role, arn:aws:iam::ACCOUNT:role/NAME"
            yield entry.find(Code.ACCESS_ENTRY, ("PrincipalArn",), found, remedy)
        kind = text(entry.properties.get("Type")) or "STANDARD"
        yield from _of_nodes(entry, kind, templates)
        yield from _of_people(entry, who)
        for key in ("AccessPolicies", "KubernetesGroups") if kind.endswith(_OF_NODES) else ():
            if items(entry.properties.get(key)):
                found = f"{key} in an entry of type {kind}: EKS refuses it"
                remedy = "remove it: nodes have their rights by the type"
                yield entry.find(Code.ACCESS_ENTRY, (key,), found, remedy)
        for index, group in enumerate(items(entry.properties.get("KubernetesGroups")) or []):
            name = text(group) or ""
            if name.startswith(_KEPT_GROUPS) and not kind.endswith(_OF_NODES):
                found = f"{shown(name)} belongs to Kubernetes or AWS: EKS refuses the entry"
                remedy = "use AmazonEKSClusterAdminPolicy, or a group of your own"
                if name in {"system:bootstrappers", "system:nodes"}:
                    remedy = "write Type: EC2_LINUX and no groups, for the role of nodes"
                path: Path = ("KubernetesGroups", index)
                yield entry.find(Code.ACCESS_ENTRY, path, found, remedy)
        for index, value in enumerate(items(entry.properties.get("AccessPolicies")) or []):
            yield from _access_policy(entry, ("AccessPolicies", index), mapping(value) or {})
    yield from _closed(templates)


def _lets_in(entry: "Resource") -> bool:
    """Tell whether somebody may do something by an entry: a policy, a group, or a name in RBAC."""
    keys = ("AccessPolicies", "KubernetesGroups", "Username")
    given = [entry.properties.get(key) for key in keys]
    return any(not is_absent(each) and each != [] for each in given)


def _closed(templates: "TemplateSet") -> Iterator[Finding]:
    """Find a cluster into which nobody comes: no entries, and none for who makes it."""
    entries = any(_lets_in(each) for each in templates.resources("AWS::EKS::AccessEntry"))
    for cluster in templates.resources("AWS::EKS::Cluster") if not entries else ():
        config = mapping(cluster.properties.get("AccessConfig")) or {}
        key = "BootstrapClusterCreatorAdminPermissions"
        if config.get("AuthenticationMode") == "API" and truth(config.get(key)) is False:
            idle = any(True for _ in templates.resources("AWS::EKS::AccessEntry"))
            beside = "and no AWS::EKS::AccessEntry beside it"
            beside += " has a policy or a group" if idle else ""
            found = f"no entry for who makes the cluster, {beside}: "
            found += "kubectl is refused to everybody"
            remedy = "add an AWS::EKS::AccessEntry with AmazonEKSClusterAdminPolicy"
            path: Path = ("AccessConfig", key)
            yield cluster.find(Code.ACCESS_ENTRY, path, found, remedy, Level.WARNING)


def _of_people(entry: "Resource", who: str) -> Iterator[Finding]:
    """Find a role of IAM Identity Center without its path, and a name that EKS keeps.

    EKS User Guide, "Create access entries": the ARN of a role has its path, unlike in aws-auth;
    a user name must not begin with system:, eks:, aws:, amazon: or iam:.
    """
    if re.search(r":role/AWSReservedSSO_", who):
        found = f"{shown(who)} without the path of the role: EKS finds no such role"
        name = who.rpartition("/")[2]
        remedy = f"write role/aws-reserved/sso.amazonaws.com/REGION/{name}, as IAM shows it"
        yield entry.find(Code.ACCESS_ENTRY, ("PrincipalArn",), found, remedy)
    name = text(entry.properties.get("Username")) or ""
    if name.startswith(_KEPT_NAMES):
        found = f"{shown(name)}: EKS keeps names that begin so, and refuses the entry"
        yield entry.find(Code.ACCESS_ENTRY, ("Username",), found, "remove it, or take another")


def _of_nodes(entry: "Resource", kind: str, templates: "TemplateSet") -> Iterator[Finding]:
    """Find an entry for people that is of the role of a node group."""
    role = templates.target(entry.properties.get("PrincipalArn"), entry.file)
    for group in templates.resources("AWS::EKS::Nodegroup") if role is not None else ():
        used = templates.target(group.properties.get("NodeRole"), group.file)
        if used is role and kind == "STANDARD":
            found = f"{group.id} has this role, and nodes need an entry of type EC2_LINUX: either "
            found += "EKS has made it and refuses this one, or no node joins"
            remedy = "remove this entry, or name the role of people"
            yield entry.find(Code.ACCESS_ENTRY, ("PrincipalArn",), found, remedy)
            return


def _mode(entry: "Resource", templates: "TemplateSet") -> Iterator[Finding]:
    """Find an entry in a cluster that takes none."""
    cluster = templates.target(entry.properties.get("ClusterName"), entry.file)
    properties = cluster.properties if cluster is not None else {}
    config = mapping(properties.get("AccessConfig"))
    mode = (config or {}).get("AuthenticationMode")
    if cluster is not None and cluster.type == _OF_THE_CDK:
        # Its custom resource takes the request of the API, in the API's own spelling.
        request = mapping(properties.get("Config")) or {}
        config = mapping(request.get("accessConfig"))
        mode = (config or {}).get("authenticationMode")
    elif cluster is not None and cluster.type != "AWS::EKS::Cluster":
        return
    if cluster is not None and config is not None and (is_absent(mode) or mode == "CONFIG_MAP"):
        found = f"{cluster.id} takes rights from aws-auth alone: EKS refuses the entry"
        remedy = f"set AuthenticationMode of {cluster.id} to API"
        yield entry.find(Code.ACCESS_ENTRY, ("ClusterName",), found, remedy)


def _access_policy(entry: "Resource", path: Path, body: "dict[str, Json]") -> Iterator[Finding]:
    arn = body.get("PolicyArn")
    written = arn if isinstance(arn, str) else json.dumps(arn)
    name = written.rpartition("/")[2].strip('"]} ')
    alike = get_close_matches(name, _ACCESS_POLICIES, 1, _CLOSE)
    cut = [each for each in _ACCESS_POLICIES if each.removesuffix("Policy") == name]
    close = _OF_IAM.get(name) or next(iter(alike or cut), None)
    whole = written[written.find("eks::aws:") :] if "eks::aws:" in written else ""
    # Every documented name begins with one of two words and has a third.
    usual = name.startswith(_FAMILIES) and "Policy" in name
    invented = _ACCESS_POLICY.fullmatch(whole) and not usual
    if ":iam:" in written and "eks::aws" not in written:
        found = "a policy of IAM, and an access entry takes those of EKS"
        remedy = f"write arn:aws:eks::aws:cluster-access-policy/{close or 'AmazonEKSViewPolicy'}"
        yield entry.find(Code.ACCESS_ENTRY, (*path, "PolicyArn"), found, remedy)
    elif (close or invented) and name not in _ACCESS_POLICIES:
        found = f"EKS has no access policy {shown(name)}"
        remedy = f"did you mean {close}?" if close else f"use one of {', '.join(_FOR_PEOPLE)}"
        yield entry.find(Code.ACCESS_ENTRY, (*path, "PolicyArn"), found, remedy)
    scope = mapping(body.get("AccessScope")) or {}
    if scope.get("Type") == "namespace" and items(scope.get("Namespaces")) == []:
        found = "a scope of namespaces that names none"
        yield entry.find(Code.ACCESS_ENTRY, (*path, "AccessScope"), found, "list the Namespaces")


def open_policies(templates: "TemplateSet") -> Iterator[Finding]:
    """Refuse repositories, buckets and keys that everybody may use.

    AWS Foundational Security Best Practices, S3.2, ECR and KMS; a Condition may narrow it.
    """
    for kind, key in _POLICY_OF_A_RESOURCE:
        for resource in templates.resources(kind):
            for index, body in enumerate(statements(resource.properties.get(key)) or []):
                if _allows_everybody(body):
                    found = "everybody may do this, in any account"
                    path = (key, "Statement", index)
                    remedy = "name the account or the roles under Principal"
                    if not is_absent(body.get("Condition")):
                        found = f"{found}: aws:SecureTransport does not say who"
                        remedy = "write Effect: Deny to refuse plain HTTP"
                    yield resource.find(Code.OPEN_TO_ALL, path, found, remedy)


def open_trust(templates: "TemplateSet") -> Iterator[Finding]:
    """Refuse roles that everybody may take, and warn of those that any service account may take.

    IAM User Guide, "AWS JSON policy elements: Principal"; EKS User Guide, "IAM roles for service
    accounts".
    """
    for role in templates.resources(ROLE):
        document = role.properties.get("AssumeRolePolicyDocument")
        for index, body in enumerate(statements(document) or []):
            path = ("AssumeRolePolicyDocument", "Statement", index)
            provider = json.dumps((mapping(body.get("Principal")) or {}).get("Federated"))
            if _allows_everybody(body):
                found = "everybody may take this role, from any account"
                remedy = "name the service, the account or the role under Principal"
                yield role.find(Code.ROLE_TRUST, path, found, remedy)
            elif "oidc.eks." in provider and is_absent(body.get("Condition")):
                found = "every service account of the cluster may take this role"
                remedy = "add a Condition on :sub, system:serviceaccount:NAMESPACE:NAME"
                yield role.find(Code.ROLE_TRUST, path, found, remedy, Level.WARNING)


def _allows_everybody(body: "dict[str, Json]") -> bool:
    principal = body.get("Principal")
    everybody = "*" in (words(principal) or words((mapping(principal) or {}).get("AWS")))
    return everybody and body.get("Effect") == "Allow" and not _narrows(body.get("Condition"))


def _narrows(condition: "Json") -> bool:
    """Tell whether a condition may shut anybody out; one that asks for plain HTTP does not."""
    operators = mapping(condition)
    asked = mapping(operators.get("Bool")) if operators and operators.keys() == {"Bool"} else None
    plain = {key.lower(): truth(value) for key, value in (asked or {}).items()}
    return not is_absent(condition) and plain != {"aws:securetransport": False}


def wide_policies(templates: "TemplateSet") -> Iterator[Finding]:
    """Refuse AWS's widest policies on roles of pods and of nodes.

    EKS Best Practices, "Identity and access management", least privilege: whoever gets into a pod
    has them too.
    """
    nodes = {
        templates.target(group.properties.get("NodeRole"), group.file)
        for group in templates.resources("AWS::EKS::Nodegroup")
    }
    pods = of_pods(templates)
    for role in templates.resources(ROLE):
        whose = "pods" if role in pods else "nodes" if role in nodes else None
        for index, arn in enumerate(items(role.properties.get("ManagedPolicyArns")) or []):
            name = (arn if isinstance(arn, str) else json.dumps(arn)).rpartition("/")[2]
            wide = _TOO_WIDE.get(name.strip('"]} '))
            if whose and wide:
                found = f"{whose} may do anything with {wide}"
                path = ("ManagedPolicyArns", index)
                remedy = "name the actions they need, and bucket and prefix of each"
                yield role.find(Code.POD_ROLE, path, found, remedy)


def identity_agent(templates: "TemplateSet") -> Iterator[Finding]:
    """Warn of pod identities in templates whose add-ons lack the agent that hands them out.

    EKS User Guide, "Set up the Amazon EKS Pod Identity Agent": without it pods get no credentials.
    """
    addons = [
        templates.default(each.properties.get("AddonName"), each.file)
        for each in templates.resources("AWS::EKS::Addon")
    ]
    named = all(isinstance(each, str) for each in addons)
    clusters = list(templates.resources("AWS::EKS::Cluster"))
    # EKS Auto Mode brings the agent.
    automatic = any(
        not is_absent(config) and truth((mapping(config) or {}).get("Enabled")) is not False
        for config in (cluster.properties.get("ComputeConfig") for cluster in clusters)
    )
    if not addons or not named or automatic or _AGENT in addons:
        return
    by_addons = [
        each
        for each in templates.resources("AWS::EKS::Addon")
        if items(each.properties.get("PodIdentityAssociations"))
    ]
    for identity in [*templates.resources("AWS::EKS::PodIdentityAssociation"), *by_addons]:
        # One add-on alone says little about the others, unless the cluster is here as well.
        at_hand = templates.target(identity.properties.get("ClusterName"), identity.file)
        if templates.names(identity.file) is None or (len(addons) == 1 and at_hand is None):
            continue
        found = f"no add-on {_AGENT} beside it, and without it pods get no credentials"
        yield identity.find(Code.ROLE_TRUST, (), found, f"add the add-on {_AGENT}", Level.WARNING)
        return
