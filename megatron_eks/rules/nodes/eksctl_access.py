"""Rules over the access entries of eksctl's cluster files."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_OF_NODES = ("EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX")
_TYPES = (*_OF_NODES, "STANDARD")
_SCOPES = ("cluster", "namespace")
_POLICY = "arn:aws:eks::aws:cluster-access-policy/"
_KEPT = ("system:", "eks:", "aws:", "amazon:", "iam:")


def entries(manifest: Manifest) -> Iterator[Finding]:
    """Require of access entries what eksctl and EKS take: a type of nodes, or policies and groups.

    eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/access_entry.go, validateAccessEntries (issue
    7446); EKS API, CreateAccessEntry, on the names and groups that EKS keeps.
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    config = mapping(manifest.body.get("accessConfig")) or {}
    listed = items(config.get("accessEntries")) or []
    if listed and config.get("authenticationMode") == "CONFIG_MAP":
        found = (
            "access entries in a cluster that takes rights from aws-auth alone: they are refused"
        )
        path: Path = ("accessConfig", "authenticationMode")
        yield _found(manifest, path, found, "write API_AND_CONFIG_MAP")
    seen: set[str] = set()
    for index, value in enumerate(listed):
        entry, path = mapping(value) or {}, ("accessConfig", "accessEntries", index)
        who = text(entry.get("principalARN")) or ""
        if who in seen and not is_placeholder(who):
            found = f"a second entry for {shown(who)}: eksctl refuses the file"
            yield _found(manifest, (*path, "principalARN"), found, "write one entry for each role")
        seen.add(who)
        yield from _principal(manifest, path, who)
        meant = _meant_type(entry)
        if meant is not None:
            found = f"{meant} as a scope, and it is the type of an entry: eksctl refuses the file"
            remedy = f"write type: {meant} beside principalARN, and remove accessPolicies, "
            remedy += "kubernetesGroups and kubernetesUsername"
            yield _found(manifest, (*path, "accessPolicies"), found, remedy)
        else:
            yield from _entry(manifest, path, entry)


def _found(manifest: Manifest, path: Path, found: str, remedy: str) -> Finding:
    return manifest.find(Code.EKSCTL, path, found, remedy)


def _principal(manifest: Manifest, path: Path, who: str) -> Iterator[Finding]:
    if ":sts:" in who and ":assumed-role/" in who:
        role = who.partition(":assumed-role/")[2].partition("/")[0]
        found = f"{shown(who)} is a session, and EKS refuses the entry"
        remedy = f"name the role with its path, arn:aws:iam::ACCOUNT:role/{role}"
        yield _found(manifest, (*path, "principalARN"), found, remedy)


def _meant_type(entry: "dict[str, Json]") -> str | None:
    """Return a type of nodes that is written where the scope of a policy goes."""
    for value in items(entry.get("accessPolicies")) or []:
        scope = mapping((mapping(value) or {}).get("accessScope")) or {}
        if text(scope.get("type")) in _TYPES:
            return text(scope.get("type"))
    return None


def _entry(manifest: Manifest, path: Path, entry: "dict[str, Json]") -> Iterator[Finding]:
    kind = text(entry.get("type")) or "STANDARD"
    if kind not in _TYPES and kind.upper().replace("-", "_") in _TYPES:
        remedy = f"write {kind.upper().replace('-', '_')}"
        found = f"{shown(kind)} is no type of an entry: eksctl refuses the file"
        yield _found(manifest, (*path, "type"), found, remedy)
    if kind in _OF_NODES:
        for key in ("accessPolicies", "kubernetesGroups", "kubernetesUsername"):
            if not is_absent(entry.get(key)) and entry.get(key) != []:
                found = f"{key} in an entry of type {kind}: eksctl refuses the file"
                remedy = "remove it: nodes have their rights by the type"
                yield _found(manifest, (*path, key), found, remedy)
        return
    groups = [text(each) or "" for each in items(entry.get("kubernetesGroups")) or []]
    kept = next((each for each in groups if each.startswith(_KEPT)), None)
    if kept is not None:
        found = f"{shown(kept)} belongs to Kubernetes or AWS: EKS refuses the entry"
        remedy = f"give AmazonEKSClusterAdminPolicy under accessPolicies: {_POLICY}..."
        if kept in {"system:bootstrappers", "system:nodes"}:
            remedy = "write type: EC2_LINUX, and no kubernetesGroups and kubernetesUsername"
        yield _found(manifest, (*path, "kubernetesGroups"), found, remedy)
    for index, value in enumerate(items(entry.get("accessPolicies")) or []):
        place: Path = (*path, "accessPolicies", index)
        yield from _policy(manifest, place, mapping(value) or {})


def _policy(manifest: Manifest, path: Path, body: "dict[str, Json]") -> Iterator[Finding]:
    arn = text(body.get("policyARN"))
    if is_absent(body.get("policyARN")):
        found = "a policy without policyARN: eksctl refuses the file"
        remedy = f"write policyARN: {_POLICY}AmazonEKSViewPolicy"
        yield _found(manifest, (*path, "policyARN"), found, remedy)
    elif arn is not None and ":cluster-access-policy/" not in arn and not is_placeholder(arn):
        found = f"{shown(arn)} is no access policy of EKS: eksctl refuses the file"
        yield _found(manifest, (*path, "policyARN"), found, f"write {_POLICY}... instead")
    scope = mapping(body.get("accessScope")) or {}
    said, spaces = text(scope.get("type")), items(scope.get("namespaces"))
    place: Path = (*path, "accessScope", "type")
    if said not in _SCOPES and not is_placeholder(said or ""):
        found = f"{shown(said)} is no scope" if said else "no scope"
        remedy = "write type: cluster, or type: namespace with namespaces"
        yield _found(manifest, place, f"{found}: eksctl refuses the file", remedy)
    elif said == "cluster" and spaces:
        found = "namespaces beside type: cluster: eksctl refuses the file"
        yield _found(manifest, place, found, "write type: namespace, or remove namespaces")
    elif said == "namespace" and spaces == []:
        found = "type: namespace without namespaces: eksctl refuses the file"
        yield _found(manifest, place, found, "add namespaces, or write type: cluster")
