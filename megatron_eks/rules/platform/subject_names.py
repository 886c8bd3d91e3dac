"""Rule over the subjects of RBAC bindings: names that nobody who calls has."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_API = "rbac.authorization.k8s.io"
_ACCOUNT = re.compile(r"system:serviceaccounts?[:/](?P<space>[^:/]+)[:/](?P<name>[^:/]+)")
_RIGHT = re.compile(r"system:serviceaccount:[^:/]+:[^:/]+")
_ALL_OF_THEM = re.compile(r"system:serviceaccounts?(:(?P<space>[^:/]+))?")
# Kubernetes, "Using RBAC Authorization" and "Authenticating": groups, and no user has the name.
_GROUPS = frozenset(
    {"system:authenticated", "system:masters", "system:nodes", "system:unauthenticated"}
)


def names(manifest: Manifest) -> Iterator[Finding]:
    """Refuse names of subjects that belong to another kind, or to no caller at all.

    Kubernetes, "Using RBAC Authorization", referring to subjects, and "Authenticating", service
    account tokens: the API server takes any text, and a name that no caller has gives no right.
    """
    if manifest.kind not in {"ClusterRoleBinding", "RoleBinding"}:
        return
    for index, value in enumerate(items(manifest.body.get("subjects")) or []):
        subject = mapping(value) or {}
        kind, name = text(subject.get("kind")), text(subject.get("name"))
        if name is None or is_placeholder(name):
            continue
        group = text(subject.get("apiGroup"))
        if kind in {"Group", "User"} and group and group != _API:
            found = f"{shown(group)}: the API server refuses the binding"
            path = ("subjects", index, "apiGroup")
            yield manifest.find(Code.WRONG_VALUE, path, found, f"write {_API}")
        problem = _wrong(kind, name)
        if problem is not None:
            found, remedy = problem
            path = ("subjects", index, "name")
            yield manifest.find(Code.RIGHTS, path, f"{shown(name)} is {found}", remedy)


def _wrong(kind: str | None, name: str) -> tuple[str, str] | None:
    """Say what a name is not, and how its bearer is written; None where nothing is wrong."""
    account, every = _ACCOUNT.fullmatch(name), _ALL_OF_THEM.fullmatch(name)
    if kind == "User" and _RIGHT.fullmatch(name):
        return None
    if account and kind in {"Group", "ServiceAccount", "User"}:
        said = "no name of a service account" if kind == "ServiceAccount" else f"no {kind.lower()}"
        remedy = f"write kind: ServiceAccount, name: {account['name']}, "
        return f"{said}: the binding gives no right", f"{remedy}namespace: {account['space']}"
    if kind == "User" and (every or name in _GROUPS):
        group = f"system:serviceaccounts{':' + every['space'] if every and every['space'] else ''}"
        said = "no user, but a group: the binding gives no right"
        return said, f"write kind: Group, name: {group if every else name}"
    if kind == "Group" and every and not name.startswith("system:serviceaccounts"):
        space = f":{every['space']}" if every["space"] else ""
        return "no group: the binding gives no right", f"write system:serviceaccounts{space}"
    if kind == "ServiceAccount" and re.search(r"[:/]", name):
        return "no name of an account: the API server refuses the binding", (
            "write the name alone, and its namespace under namespace"
        )
    return None
