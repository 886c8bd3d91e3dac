"""Rules over the rules of roles, and over bindings, that give nobody anything."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.rules.platform.api_rights import GROUPS
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

# Groups of operators beside those whose resources are known.
_OF_OPERATORS = frozenset(
    {
        *("scheduling.volcano.sh", "batch.volcano.sh", "scheduling.x-k8s.io", "kueue.x-k8s.io"),
        *("jobset.x-k8s.io", "leaderworkerset.x-k8s.io", "ray.io", "trainer.kubeflow.org"),
        *("resource.k8s.io", "node.k8s.io", "events.k8s.io", "discovery.k8s.io"),
        *("authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io"),
        *("metrics.k8s.io", "apiregistration.k8s.io", "karpenter.sh", "karpenter.k8s.aws"),
        *("monitoring.coreos.com", "cert-manager.io", "snapshot.storage.k8s.io", "nvidia.com"),
        *("storage.k8s.io", "extensions", "flowcontrol.apiserver.k8s.io"),
    }
)
_CLOSE = 0.88


def rules(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a rule without groups, resources or verbs, and warn of a slip in a group.

    Kubernetes, pkg/apis/rbac/validation, ValidatePolicyRule; "Using RBAC Authorization".
    """
    if manifest.kind not in {"ClusterRole", "Role"}:
        return
    for index, value in enumerate(items(manifest.body.get("rules")) or []):
        rule = mapping(value) or {}
        of_urls = not is_absent(rule.get("nonResourceURLs"))
        for key in ("apiGroups", "resources") if rule and not of_urls else ():
            if is_absent(rule.get(key)):
                found = f"a rule without {key}: the API server refuses the role"
                remedy = 'add apiGroups; "" is that of pods' if key == "apiGroups" else f"add {key}"
                yield manifest.find(Code.RIGHTS, ("rules", index, key), found, remedy)
        for place, each in enumerate(items(rule.get("apiGroups")) or []):
            group = text(each) or ""
            known = {*GROUPS, *_OF_OPERATORS}
            # A version after the group is a finding of its own.
            own = group in known or "/" in group or is_placeholder(group)
            close = get_close_matches(group, known, 1, _CLOSE) if not own else []
            # Groups are often called after others: networking.x-k8s.io, groupsnapshot.storage....
            if close and abs(len(close[0]) - len(group)) <= 1:
                found = f"{shown(group)} is no group: it gives no right"
                path = ("rules", index, "apiGroups", place)
                remedy = f"did you mean {close[0]}?"
                yield manifest.find(Code.RIGHTS, path, found, remedy, Level.WARNING)


def bindings(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a binding that gives its role to nobody.

    Kubernetes, "Using RBAC Authorization", RoleBinding and ClusterRoleBinding.
    """
    bound = manifest.kind in {"ClusterRoleBinding", "RoleBinding"}
    if bound and "roleRef" in manifest.body and is_absent(manifest.body.get("subjects")):
        found = "no subjects: nobody has this role by it"
        remedy = "add {kind: ServiceAccount, name: ..., namespace: ...} to subjects"
        yield manifest.find(Code.RIGHTS, ("subjects",), found, remedy, Level.WARNING)
