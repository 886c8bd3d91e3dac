"""Rules over what roles name: jobs of another group, and objects that nearly have the name."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.objects.manifest_set import (
    Found,
    ManifestSet,
    built_by_kustomize,
    may_share,
)
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

# Names that no other group has: kubeflow/trainer v1 and v2, JobSet. Kueue's are in two groups.
_GROUPS = {
    **dict.fromkeys(
        ("jaxjobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs"), "kubeflow.org"
    ),
    **dict.fromkeys(("clustertrainingruntimes", "trainjobs"), "trainer.kubeflow.org"),
    "jobsets": "jobset.x-k8s.io",
}
# What an operator changes by its name alone, and how like two names of them are by a slip: others
# make Secrets too, by names of one form.
_NAMED = {
    "mutatingwebhookconfigurations": ("MutatingWebhookConfiguration", 0.85),
    "secrets": ("Secret", 0.95),
    "validatingwebhookconfigurations": ("ValidatingWebhookConfiguration", 0.85),
}


def addresses(manifest: Manifest) -> Iterator[Finding]:
    """Refuse addresses of the API server in a role of one namespace.

    Kubernetes, pkg/apis/rbac/validation: namespaced rules cannot apply to non-resource URLs.
    """
    for index, value in enumerate(items(manifest.body.get("rules")) or []):
        if manifest.kind == "Role" and items((mapping(value) or {}).get("nonResourceURLs")):
            found = "a Role has no nonResourceURLs: the API server refuses it"
            path: Path = ("rules", index, "nonResourceURLs")
            yield manifest.find(Code.RIGHTS, path, found, "write a ClusterRole for them")


def groups(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a rule whose groups do not hold the resource that it names.

    Kubernetes, "Using RBAC Authorization", referring to resources: a right is to a group and a
    resource together. What a group with a version gives is told elsewhere.
    """
    if manifest.kind not in {"ClusterRole", "Role"}:
        return
    for index, value in enumerate(items(manifest.body.get("rules")) or []):
        rule = mapping(value) or {}
        given = [text(each) or "$" for each in items(rule.get("apiGroups")) or []]
        if not given or any("/" in each or each == "*" or is_placeholder(each) for each in given):
            continue
        # Several kinds of jobs may be in one rule, each with its group.
        for place, each in enumerate(items(rule.get("resources")) or []):
            name = (text(each) or "").partition("/")[0]
            wanted = _GROUPS.get(name)
            if wanted is None or wanted in given:
                continue
            found = f"{shown(name)} is in group {wanted}: this gives no right to it"
            path: Path = ("rules", index, "resources", place)
            yield manifest.find(Code.RIGHTS, path, found, f"add {wanted} to apiGroups")


def named(together: ManifestSet) -> Iterator[Found]:
    """Warn of a right to one object by nearly the name of one beside the role, which no role names.

    Kubernetes, "Using RBAC Authorization", referring to resources: the right is to that name alone.
    open-policy-agent/cert-controller, pkg/rotator: it writes a certificate to its Secret, and its
    authority to the configuration of the webhook.
    """
    rules = [
        (role, index, rule)
        for role in together.of("ClusterRole", "Role")
        for index, value in enumerate(items(role.body.get("rules")) or [])
        if (rule := mapping(value) or {}) and not is_absent(rule.get("resourceNames"))
    ]
    given = {text(name) for _, _, rule in rules for name in items(rule["resourceNames"]) or []}
    for role, index, rule in rules:
        resources = items(rule.get("resources")) or []
        kind, like = _NAMED.get(str(resources[0]) if len(resources) == 1 else "", ("", 1.0))
        there = {
            each.name
            for each in together.of(kind)
            if each.file == role.file and (role.kind == "ClusterRole" or may_share(role, each))
        }
        free = [each for each in there if each is not None and each not in given]
        for place, value in enumerate(items(rule["resourceNames"]) or []):
            name = text(value) or "$"
            close = get_close_matches(name, free, 1, like) if name not in there else []
            counted = close and re.sub(r"[0-9]", "", name) == re.sub(r"[0-9]", "", close[0])
            if close and not (counted or is_placeholder(name) or _is_renamed(role, together)):
                path: Path = ("rules", index, "resourceNames", place)
                found = f"no {kind} {shown(name)} here, and no role names {close[0]}"
                remedy = f"did you mean {close[0]}?"
                yield role, role.find(Code.RIGHTS, path, found, remedy, Level.WARNING)


def _is_renamed(role: Manifest, together: ManifestSet) -> bool:
    return bool(built_by_kustomize(role, together))
