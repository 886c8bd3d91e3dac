"""Rules over what eksctl refuses in a group beside its own AMI, its family or its updates."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Manifest

_MANAGED = "managedNodeGroups"
_AL2023 = "AmazonLinux2023"
_COMMANDS = ("overrideBootstrapCommand", "preBootstrapCommands")


def groups(manifest: Manifest) -> Iterator[Finding]:
    """Refuse what eksctl's own checks of a group do not take together.

    eksctl-io/eksctl, pkg/apis/eksctl.io/v1alpha5/validation.go: ValidateManagedNodeGroup,
    ValidateNodeGroup and validateNodeGroupBase; pkg/vpc/vpc.go, selectNodeGroupSubnetsFromIDs.
    """
    if (manifest.group, manifest.kind) != ("eksctl.io", "ClusterConfig"):
        return
    for key in (_MANAGED, "nodeGroups"):
        for index, value in enumerate(items(manifest.body.get(key)) or []):
            group, path = mapping(value) or {}, (key, index)
            yield from _images(manifest, path, group)
            yield from _updates(manifest, path, group)
            yield from _metadata(manifest, path, group)
            yield from _subnets(manifest, path, group)


def _found(manifest: Manifest, path: Path, found: str, remedy: str) -> Finding:
    return manifest.find(Code.EKSCTL, path, f"{found}: eksctl refuses the file", remedy)


def _images(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    family = text(group.get("amiFamily"))
    own = not is_absent(group.get("ami"))
    if own and is_absent(group.get("amiFamily")):
        found = "an AMI of one's own without amiFamily"
        yield _found(manifest, (*path, "amiFamily"), found, f"write amiFamily: {_AL2023}")
    if family is not None and family.startswith("Bottlerocket"):
        for key in _COMMANDS:
            if not is_absent(group.get(key)):
                found = f"{key}, and {family} has no shell"
                yield _found(manifest, (*path, key), found, "write bottlerocket.settings instead")
    if own and path[0] == _MANAGED and not is_absent(group.get("maxPodsPerNode")):
        found = "maxPodsPerNode beside an AMI of one's own"
        remedy = "write kubelet.config.maxPods in the NodeConfig of overrideBootstrapCommand"
        yield _found(manifest, (*path, "maxPodsPerNode"), found, remedy)


def _updates(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    update = mapping(group.get("updateConfig")) or {}
    nodes, most = number(update.get("maxUnavailable")), number(group.get("maxSize"))
    both = not is_absent(update.get("maxUnavailablePercentage"))
    if nodes is not None and both:
        found = "maxUnavailable and maxUnavailablePercentage"
        yield _found(manifest, (*path, "updateConfig"), found, "keep one of them")
    elif nodes is not None and most is not None and nodes > most:
        found = f"maxUnavailable {nodes}, and maxSize {most}"
        yield _found(
            manifest, (*path, "updateConfig", "maxUnavailable"), found, f"write at most {most}"
        )


def _metadata(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    iam = mapping(group.get("iam")) or {}
    policies = mapping(iam.get("withAddonPolicies")) or {}
    asked = [key for key, value in policies.items() if value is True]
    if group.get("disablePodIMDS") is True and asked:
        found = f"disablePodIMDS beside iam.withAddonPolicies.{asked[0]}, which pods get there"
        remedy = "remove one of them: give pods a role of their own"
        yield _found(manifest, (*path, "disablePodIMDS"), found, remedy)


def _subnets(manifest: Manifest, path: Path, group: dict[str, Json]) -> Iterator[Finding]:
    """Find a subnet's name that vpc.subnets does not have; an id is looked up in EC2."""
    given = mapping((mapping(manifest.body.get("vpc")) or {}).get("subnets")) or {}
    kinds = [given.get(key) for key in ("private", "public") if not is_absent(given.get(key))]
    known = [name for each in kinds if isinstance(each, dict) for name in each]
    if not known or not all(isinstance(each, dict) for each in kinds):
        return
    for index, value in enumerate(items(group.get("subnets")) or []):
        name = text(value) or "subnet-"
        if name not in known and not name.startswith("subnet-") and not is_placeholder(name):
            found = f"vpc.subnets has no {shown(name)}"
            remedy = f"write one of {', '.join(known)}, or an id: subnet-..."
            yield _found(manifest, (*path, "subnets", index), found, remedy)
