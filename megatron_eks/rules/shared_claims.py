"""Rule over claims that several pods mount, and that one node alone may have."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import Manifest, Pod

_SHARED = frozenset({"ReadOnlyMany", "ReadWriteMany"})
_ONE_POD = "ReadWriteOncePod"


def claims(together: ManifestSet) -> Iterator[Found]:
    """Warn of a claim for one node under a job of several pods; refuse one for a single pod.

    Kubernetes, "Persistent Volumes", access modes: a disk is attached to one node, and the pods
    on others wait with Multi-Attach errors.
    """
    for manifest in together.objects:
        mounted = [
            (pod, index, claim)
            for pod in (manifest.pods if manifest.is_job else ())
            for index, claim in _claims(manifest, pod, together)
        ]
        for pod, index, claim in mounted:
            users = [each for each, _, other in mounted if other is claim]
            if sum(1 if each.replicas is None else each.replicas for each in users) > 1:
                modes = [text(each) for each in items(claim.spec.get("accessModes")) or []]
                if not modes or None in modes or not _SHARED.isdisjoint(map(str, modes)):
                    continue
                path = (*pod.path[1:], "volumes", index, "persistentVolumeClaim")
                found = f"{claim.title} is {modes[0]}, and pods on several nodes mount it"
                remedy = "use ReadWriteMany, on FSx for Lustre or EFS"
                level = Level.ERROR if modes == [_ONE_POD] else Level.WARNING
                finding = manifest.find(Code.CLAIM_AND_VOLUME, path, found, remedy, level)
                yield manifest, finding


def _claims(manifest: Manifest, pod: Pod, together: ManifestSet) -> Iterator[tuple[int, Manifest]]:
    for index, value in enumerate(items(pod.spec.get("volumes")) or []):
        source = mapping((mapping(value) or {}).get("persistentVolumeClaim")) or {}
        name = text(source.get("claimName"))
        claim = together.named(manifest, "PersistentVolumeClaim", name) if name else None
        if claim is not None:
            yield index, claim
