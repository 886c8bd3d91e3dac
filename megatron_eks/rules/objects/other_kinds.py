"""Rule over names that belong to an object of another kind than the one that is asked for."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, references

# What people take for each other.
_OTHERS = {
    "ClusterRole": ("Role",),
    "ConfigMap": ("Secret",),
    "LocalQueue": ("ClusterQueue",),
    "PersistentVolumeClaim": ("PersistentVolume",),
    "PriorityClass": ("WorkloadPriorityClass",),
    "Role": ("ClusterRole",),
    "Secret": ("ConfigMap",),
}
# Kubernetes, "Using RBAC Authorization": every cluster has these.
_GIVEN = frozenset({"admin", "cluster-admin", "edit", "view"})


def kinds(together: ManifestSet) -> Iterator[Found]:
    """Warn of a name under which the objects at hand have another kind only.

    Kubernetes, "Using RBAC Authorization" (roleRef), "Configure a Pod to Use a ConfigMap" and
    "Secrets"; Kueue, "Local Queue": a name is looked up among the objects of its kind alone.
    """
    for manifest in together.objects:
        for reference in references(manifest):
            others = _OTHERS.get(reference.kind, ())
            given = reference.kind == "ClusterRole" and (
                reference.name in _GIVEN or reference.name.startswith("system:")
            )
            # A binding for the whole cluster may name no Role at all (object_parts.role_kinds).
            given = given or (manifest.kind == "ClusterRoleBinding" and reference.kind == "Role")
            # Whatever bears the name in another namespace is judged as a reference.
            if not others or given or _is_there(together, reference.kind, reference.name):
                continue
            for kind in others:
                if together.named(manifest, kind, reference.name) is not None:
                    found = f"{reference.kind}/{reference.name} is not there, and {kind}"
                    found += f"/{reference.name} is"
                    remedy = f"refer to the {kind}, or to the {reference.kind} by its name"
                    of_role = reference.path[0] == "roleRef"
                    path: Path = ("roleRef", "kind") if of_role else reference.path
                    finding = manifest.find(Code.MISSING_OBJECT, path, found, remedy, Level.WARNING)
                    yield manifest, finding


def _is_there(together: ManifestSet, kind: str, name: str) -> bool:
    return any(each.name == name for each in together.of(kind))
