"""Rules over the IAM roles of clusters, nodes and pods: who may take them, and what they need."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.cloudformation.policy_documents import ELSEWHERE
from megatron_eks.rules.policies import (
    REGISTRY,
    ROLE,
    WORKER,
    policy_name,
    statements,
    unknown_policy,
)
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import items, mapping, text

_PODS = "pods.eks.amazonaws.com"
_CONTROL_PLANE = "eks.amazonaws.com"
_INSTANCES = "ec2.amazonaws.com"
# Where a role stands, and who takes it there (EKS User Guide, "Amazon EKS cluster IAM role",
# "Amazon EKS node IAM role", "EKS Pod Identity role").
_USERS: tuple[tuple[str, str, str], ...] = (
    ("AWS::EKS::Cluster", "RoleArn", _CONTROL_PLANE),
    ("AWS::EKS::Nodegroup", "NodeRole", _INSTANCES),
    ("AWS::EKS::PodIdentityAssociation", "RoleArn", _PODS),
    ("AWS::CodeBuild::Project", "ServiceRole", "codebuild.amazonaws.com"),
    ("AWS::EC2::FlowLog", "DeliverLogsPermissionArn", "vpc-flow-logs.amazonaws.com"),
)
_POD_ACTIONS = frozenset({"sts:AssumeRole", "sts:TagSession"})

_CLUSTER = "AmazonEKSClusterPolicy"
_CONTROL = (_CLUSTER, "AdministratorAccess", "PowerUserAccess")


def trust(templates: TemplateSet) -> Iterator[Finding]:
    """Require of a role that the service which takes it may do so.

    EKS User Guide, "Amazon EKS cluster IAM role", "Amazon EKS node IAM role" and "EKS Pod Identity
    role", whose agent needs sts:TagSession beside sts:AssumeRole, whoever associates the role.
    """
    judged: list[Resource] = []
    for kind, key, service in _USERS:
        for user in templates.resources(kind):
            role = templates.target(user.properties.get(key), user.file)
            if role is not None and role.type == ROLE:
                judged.append(role)
                if _is_of_another(role, service, templates):
                    yield _mistaken(user, key, role, service, templates)
                else:
                    yield from _trusts(user, key, role, service)
    for addon in templates.resources("AWS::EKS::Addon"):
        for value in items(addon.properties.get("PodIdentityAssociations")) or []:
            body = mapping(value) or {}
            role = templates.target(body.get("RoleArn"), addon.file)
            if role is not None and role.type == ROLE:
                judged.append(role)
                yield from _trusts(addon, "RoleArn", role, _PODS)
    for role in templates.resources(ROLE):
        if role not in judged:
            yield from _trusts(None, "", role, _PODS)


def _trusted(role: Resource) -> set[str]:
    """Return the services that may take a role, as far as its trust policy is written out."""
    listed = statements(role.properties.get("AssumeRolePolicyDocument")) or []
    names = [_strings((mapping(each.get("Principal")) or {}).get("Service")) for each in listed]
    return set() if None in names else {name for each in names for name in each or []}


def _is_of_another(role: Resource, service: str, templates: TemplateSet) -> bool:
    """Tell a role that is another one's here, by its use and its trust: the reference is wrong."""
    trusted = _trusted(role)
    return service not in trusted and any(
        other in trusted and templates.target(user.properties.get(key), user.file) is role
        for kind, key, other in _USERS
        for user in templates.resources(kind)
    )


def _mistaken(
    user: Resource, key: str, role: Resource, service: str, templates: TemplateSet
) -> Finding:
    found = f"{role.id} trusts {', '.join(sorted(_trusted(role)))}, and {service} takes this role"
    fitting = [
        each
        for each in templates.resources(ROLE)
        if each.file == user.file and service in _trusted(each)
    ]
    remedy = f"write Fn::GetAtt [{fitting[0].id}, Arn]" if len(fitting) == 1 else ""
    return user.find(Code.ROLE_TRUST, (key,), found, remedy or f"name a role that trusts {service}")


def _trusts(user: Resource | None, key: str, role: Resource, service: str) -> Iterator[Finding]:
    listed = statements(role.properties.get("AssumeRolePolicyDocument"))
    if listed is None:
        return
    trusted: set[str] = set()
    actions: set[str] = set()
    for statement in listed:
        principal = statement.get("Principal")
        names = _strings((mapping(principal) or {}).get("Service"))
        granted = _strings(statement.get("Action"))
        if principal == "*" or names is None or granted is None:
            return
        trusted |= set(names)
        if service in names:
            actions |= set(granted)
    path = ("AssumeRolePolicyDocument",)
    if user is None and service not in trusted:
        return
    name = service.removesuffix("amazonaws.com")
    same = {service, *(f"{name}{each}" for each in ELSEWHERE)}
    if user is not None and same.isdisjoint(trusted):
        others = ", ".join(sorted(trusted)) or "no service"
        found = f"{user.id} uses it as {key}, and it trusts {others}"
        yield role.find(Code.ROLE_TRUST, path, found, f"trust {service}")
    elif service.startswith("pods.") and not (actions >= _POD_ACTIONS or actions & {"*", "sts:*"}):
        missing = ", ".join(sorted(_POD_ACTIONS - actions))
        found = f"EKS Pod Identity needs {missing} to take it"
        yield role.find(Code.ROLE_TRUST, path, found, f"allow {missing}")


def _strings(value: Json) -> list[str] | None:
    """Return the texts of a text or a list; None where one cannot be known."""
    listed = [value] if isinstance(value, str) else items(value)
    found = [text(each) for each in listed or []]
    return None if listed is None or None in found else [each for each in found if each]


def node_policies(templates: TemplateSet) -> Iterator[Finding]:
    """Require the policies without which a node never joins, by names that exist.

    EKS User Guide, "Amazon EKS node IAM role" and "Amazon EKS cluster IAM role".
    """
    for role in templates.resources(ROLE):
        for index, value in enumerate(items(role.properties.get("ManagedPolicyArns")) or []):
            wrong = unknown_policy(policy_name(value) or "")
            if wrong is not None:
                yield role.find(Code.NODE_ROLE, ("ManagedPolicyArns", index), *wrong)
    judged: set[Resource] = set()
    for cluster in templates.resources("AWS::EKS::Cluster"):
        taken = templates.target(cluster.properties.get("RoleArn"), cluster.file)
        if taken is not None and _is_of_another(taken, _CONTROL_PLANE, templates):
            continue
        names = _all_policies(taken, templates) if taken is not None else None
        if taken is not None and names is not None and not names.intersection(_CONTROL):
            why = f"{WORKER[0]} is for nodes"
            why = why if WORKER[0] in names else "no policy allows it what the control plane does"
            found = f"{cluster.id} takes this role, and {why}"
            path = ("ManagedPolicyArns",)
            yield taken.find(Code.NODE_ROLE, path, found, f"add {_CLUSTER}")
    for group in templates.resources("AWS::EKS::Nodegroup"):
        taken = templates.target(group.properties.get("NodeRole"), group.file)
        if taken is None or _is_of_another(taken, _INSTANCES, templates):
            continue
        if taken.type == ROLE and taken not in judged:
            judged.add(taken)
            yield from _needed(taken, templates)


def _all_policies(role: Resource, templates: TemplateSet) -> set[str] | None:
    """Return the names of a role's policies of AWS; None where there may be others."""
    policies = items(role.properties.get("ManagedPolicyArns"))
    names = [policy_name(each) for each in policies or []]
    own = items(role.properties.get("Policies"))
    attached = any(
        role in templates.targets(items(each.properties.get("Roles")) or [], each.file)
        for each in templates.resources("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
    ) or any(
        templates.target(each.properties.get("RoleName"), each.file) is role
        for each in templates.resources("AWS::IAM::RolePolicy")
    )
    # A policy of one's own may allow the same.
    if role.type != ROLE or policies is None or None in names or own or own is None or attached:
        return None
    return {each for each in names if each}


def _needed(role: Resource, templates: TemplateSet) -> Iterator[Finding]:
    names = _all_policies(role, templates)
    if names is None:
        return
    for known, what, level in (
        (WORKER, "to join the cluster", Level.ERROR),
        (REGISTRY, "to pull images from ECR", Level.WARNING),
    ):
        if not names.intersection(known):
            found = f"nodes take this role, and no policy allows them {what}"
            path = ("ManagedPolicyArns",)
            yield role.find(Code.NODE_ROLE, path, found, f"add {known[0]}", level)
