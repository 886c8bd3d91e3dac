"""Rules over who holds rights: pods without a token, accounts elsewhere, operators with too few."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import (
    Found,
    ManifestSet,
    built_by_kustomize,
    in_one_folder,
)
from megatron_eks.rules.platform.api_rights import gives
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_Right = tuple[str, str, str]
"""A group, a resource and a verb."""


@dataclass(frozen=True)
class Operator:
    """A program that calls the API server, and what its image has to be allowed for its work."""

    image: re.Pattern[str]
    needed: tuple[_Right, ...]
    end: str
    remedy: str


_OPERATORS = (
    # kubeflow/trainer v1.9.4, pkg/controller.v1/pytorch/pytorchjob_controller.go: what it calls.
    Operator(
        re.compile(r"(^|/)training-operator([:@]|$)"),
        (
            *(("", "pods", verb) for verb in ("create", "delete", "list", "watch")),
            *(("", "services", verb) for verb in ("create", "delete", "list", "watch")),
            *(("kubeflow.org", "pytorchjobs", verb) for verb in ("list", "watch")),
            ("kubeflow.org", "pytorchjobs/status", "update"),
        ),
        "",
        "add it to the ClusterRole that is bound to it",
    ),
    # kubernetes/autoscaler, issues 7663 and 8678: 1.32 still scaled without it.
    Operator(
        re.compile(r"(^|/)cluster-autoscaler:v?1\.(3[3-9]|[4-9][0-9])(?![0-9])"),
        tuple(("storage.k8s.io", "volumeattachments", verb) for verb in ("list", "watch")),
        ", for which it waits from 1.33 on: it never scales",
        "add volumeattachments of storage.k8s.io with get, list and watch to its ClusterRole",
    ),
)


def tokens(together: ManifestSet) -> Iterator[Found]:
    """Warn of a service account with rights in pods that get no token, and of one named a user.

    Kubernetes, "Configure Service Accounts for Pods", opting out: each call is "forbidden" to
    system:anonymous then; "Using RBAC Authorization", subjects.
    """
    accounts = together.of("ServiceAccount")
    bound: set[tuple[str | None, str | None]] = set()
    for binding in together.of("ClusterRoleBinding", "RoleBinding"):
        for index, value in enumerate(items(binding.body.get("subjects")) or []):
            subject = mapping(value) or {}
            name = text(subject.get("name"))
            space = text(subject.get("namespace")) or binding.namespace
            if subject.get("kind") == "ServiceAccount":
                bound.add((space, name))
            named = any(each.name == name and in_one_folder(each, binding) for each in accounts)
            if subject.get("kind") == "User" and named:
                found = f"{shown(name)} is a service account here, and a user of that name is none"
                path: Path = ("subjects", index, "kind")
                remedy = "write kind: ServiceAccount, its namespace, and no apiGroup"
                yield binding, binding.find(Code.RIGHTS, path, found, remedy, Level.WARNING)
    for manifest in together.objects:
        for pod in manifest.pods:
            account = text(pod.spec.get("serviceAccountName"))
            if account and (manifest.namespace, account) in bound and _has_no_token(pod):
                found = f"{shown(account)} has rights, and this pod gets no token to use them"
                path = (*pod.path[1:], "automountServiceAccountToken")
                remedy = "set it to true, or take the rights away"
                yield manifest, manifest.find(Code.RIGHTS, path, found, remedy, Level.WARNING)


def _has_no_token(pod: Pod) -> bool:
    return pod.spec.get("automountServiceAccountToken") is False and not any(
        "projected" in (mapping(each) or {}) for each in items(pod.spec.get("volumes")) or []
    )


def accounts_elsewhere(together: ManifestSet) -> Iterator[Found]:
    """Find a binding whose service account is, by that name, in another namespace only.

    Kubernetes, "Using RBAC Authorization": an account is its namespace and its name. Pods of that
    other one show that it is meant.
    """
    accounts = together.of("ServiceAccount")
    for binding in together.of("ClusterRoleBinding", "RoleBinding"):
        for index, value in enumerate(items(binding.body.get("subjects")) or []):
            subject = mapping(value) or {}
            name, space = text(subject.get("name")), text(subject.get("namespace"))
            known = subject.get("kind") == "ServiceAccount" and name and space
            if not known or is_placeholder(f"{name}{space}"):
                continue
            same = [each for each in accounts if each.name == name and in_one_folder(each, binding)]
            spaces = {each.namespace for each in same}
            # A binding of its own namespace is judged as a reference.
            if not same or None in spaces or space in {*spaces, binding.namespace}:
                continue
            there = ", ".join(sorted(filter(None, spaces)))
            user = _without_rights(name or "", binding, together)
            if user is not None:
                found = f"{shown(name)} of namespace {shown(space)}, and {user.title} runs as that "
                found += f"of {user.namespace}, which no other binding gives such rights"
                path = ("subjects", index, "namespace")
                finding = binding.find(Code.RIGHTS, path, found, f"write {user.namespace}")
                yield binding, finding
                continue
            found = f"{shown(name)} of namespace {shown(space)}, and it is in {there}"
            path = ("subjects", index, "namespace")
            remedy = f"write {there}, or make the account there"
            yield binding, binding.find(Code.RIGHTS, path, found, remedy, Level.WARNING)


def _without_rights(name: str, binding: Manifest, together: ManifestSet) -> Manifest | None:
    """Return whose pods run as an account of this name that no other binding gives the same.

    Kustomize writes its namespace into subjects too. A RoleBinding to a Role is of one namespace,
    and so no substitute for one of the cluster.
    """
    wide = binding.kind == "ClusterRoleBinding"
    bound = {
        text(subject.get("namespace")) or each.namespace
        for each in together.of("ClusterRoleBinding", "RoleBinding")
        if not wide or _body(each.body.get("roleRef")).get("kind") != "Role"
        for subject in map(_body, items(each.body.get("subjects")) or [])
        if subject.get("name") == name
    }
    for each in () if built_by_kustomize(binding, together) else together.objects:
        named = any(pod.spec.get("serviceAccountName") == name for pod in each.pods)
        if named and in_one_folder(each, binding) and each.namespace not in {None, *bound}:
            return each
    return None


def _body(value: Json) -> "dict[str, Json]":
    return mapping(value) or {}


def operators(together: ManifestSet) -> Iterator[Found]:
    """Refuse an operator that may not do its work, where all its roles are at hand.

    kubeflow/trainer v1.9.4, the rights that its controller names: its log says "forbidden", and
    no pod of a job is made; kubernetes/autoscaler, issue 8678: it waits for what it may not list.
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            images = [str(each.body.get("image")) for each in pod.containers]
            for operator in _OPERATORS:
                named = any(operator.image.search(each) for each in images)
                roles = _roles_of(manifest, pod, together) if named else []
                rules = [_body(each) for role in roles for each in _rules(role)]
                missing = [each for each in operator.needed if not gives(rules, *each)]
                if rules and missing:
                    yield _lacking(manifest, pod, operator, missing, roles)


def _lacking(
    manifest: Manifest,
    pod: Pod,
    operator: Operator,
    missing: "list[_Right]",
    roles: "list[Manifest]",
) -> Found:
    """Say all verbs that lack on a resource, at the role that has to have them if there is one."""
    _, resource, _ = missing[0]
    *others, last = [verb for _, other, verb in missing if other == resource]
    lacking = f"{', '.join(others)} and {last}" if others else last
    # A Role gives them in one namespace only.
    wide = [each for each in roles if each.kind == "ClusterRole"]
    if len(wide) != 1:
        found = f"the roles of its service account lack {lacking} on {resource}{operator.end}"
        path: Path = (*pod.path[1:], "serviceAccountName")
        return manifest, manifest.find(Code.RIGHTS, path, found, operator.remedy)
    (role,) = wide
    found = f"no {lacking} on {resource} for {manifest.title}{operator.end or ': forbidden'}"
    group = missing[0][0]
    for index, rule in enumerate(_rules(role)):
        if _body(rule).get("apiGroups") != [group]:
            continue
        listed = [text(each) for each in items(_body(rule).get("resources")) or []]
        if resource in listed:
            remedy = f"add {lacking}" if listed == [resource] else f"add {lacking} for {resource}"
            return role, role.find(Code.RIGHTS, ("rules", index, "verbs"), found, remedy)
    remedy = f"add a rule for {resource} with {lacking}"
    if operator.end:
        remedy = operator.remedy
    return role, role.find(Code.RIGHTS, ("rules",), found, remedy)


def _rules(role: Manifest) -> "list[Json]":
    return items(role.body.get("rules")) or []


def _roles_of(manifest: Manifest, pod: Pod, together: ManifestSet) -> "list[Manifest]":
    """Return the roles bound to a pod's account; none where one is not at hand.

    A binding of the same name in another namespace is a finding of its own.
    """
    account = text(pod.spec.get("serviceAccountName")) or "default"
    found: list[Manifest] = []
    for binding in together.of("ClusterRoleBinding", "RoleBinding"):
        subjects = [mapping(each) or {} for each in items(binding.body.get("subjects")) or []]
        spaces = [
            each.get("namespace", binding.namespace)
            for each in subjects
            if each.get("kind") == "ServiceAccount" and each.get("name") == account
        ]
        if not spaces:
            continue
        if manifest.namespace not in spaces:
            return []
        reference = mapping(binding.body.get("roleRef")) or {}
        kind, name = text(reference.get("kind")) or "", text(reference.get("name")) or ""
        # What the API server refuses is a finding of its own.
        if binding.kind == "ClusterRoleBinding" and kind == "Role":
            return []
        role = together.named(binding, kind, name)
        aggregated = role is not None and "aggregationRule" in role.body
        if role is None or aggregated:
            return []
        found.append(role)
    return found
