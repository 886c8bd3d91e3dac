"""Rule over roles that name jobs of an operator, and another group than theirs."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

# Names that no other group has: kubeflow/trainer v1 and v2, JobSet. Kueue's are in two groups.
_GROUPS = {
    **dict.fromkeys(
        ("jaxjobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs"), "kubeflow.org"
    ),
    **dict.fromkeys(("clustertrainingruntimes", "trainjobs"), "trainer.kubeflow.org"),
    "jobsets": "jobset.x-k8s.io",
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
