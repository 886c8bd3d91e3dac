"""Rule over claims that several pods mount, and that one node alone may have."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.rules.hardware import takes_all_gpus
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_absent, is_placeholder, items, mapping, number, text
from megatron_eks.rules.workloads import Manifest, Pod

_SHARED = frozenset({"ReadOnlyMany", "ReadWriteMany"})
_ONE_NODE, _ONE_POD = "ReadWriteOnce", "ReadWriteOncePod"
# Whole words of a class's name.
_OF_DISKS = re.compile(r"(?<![a-z0-9])(gp[23]|io[12]|ebs|auto-ebs-sc)(?![a-z0-9])")


def claims(together: ManifestSet) -> Iterator[Found]:
    """Warn of a claim for one node under a job of several pods; refuse it where nodes differ.

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
                # Pods of a whole node each are on several for sure, and only a disk is attached;
                # the jobs of a set may come one after another.
                apart = all(takes_all_gpus(each) for each in users) and _is_disk(claim, together)
                at_once = manifest.pytorch_replicas is not None or any(
                    (each.replicas or 1) > 1 for each in users
                )
                apart = apart and at_once
                level = Level.ERROR if modes == [_ONE_POD] or apart else Level.WARNING
                finding = manifest.find(Code.CLAIM_AND_VOLUME, path, found, remedy, level)
                yield manifest, finding


def of_deployments(together: ManifestSet) -> Iterator[Found]:
    """Warn of a disk under several pods of a Deployment, or under an update that adds one first.

    Kubernetes, "Deployments", strategy: by default the new pod starts before the old one goes; on
    another node it waits for the disk with Multi-Attach errors, and the old one waits for it.
    """
    for manifest in together.of("Deployment"):
        count = 1 if is_absent(given := manifest.spec.get("replicas")) else number(given)
        for pod in manifest.pods:
            for index, claim in _claims(manifest, pod, together):
                modes = items(claim.spec.get("accessModes"))
                if modes not in ([_ONE_NODE], [_ONE_POD]) or not _is_disk(claim, together):
                    continue
                path: Path = (*pod.path[1:], "volumes", index, "persistentVolumeClaim")
                level, near = Level.WARNING, "kubernetes.io/hostname" in str(dict(pod.spec))
                if count is not None and count > 1 and (modes == [_ONE_POD] or not near):
                    found = f"{claim.title} is {modes[0]}, and {count} pods mount it"
                    remedy = "write replicas: 1, or use ReadWriteMany, on FSx for Lustre or EFS"
                    level = Level.ERROR if modes == [_ONE_POD] else level
                elif count == 1 and _adds_first(manifest) and not near:
                    found = f"{claim.title} is {modes[0]}, and an update starts the new pod before "
                    found += "the old one is gone: on another node it waits for ever"
                    path, remedy = ("spec", "strategy"), "write strategy: {type: Recreate}"
                else:
                    continue
                finding = manifest.find(Code.CLAIM_AND_VOLUME, path, found, remedy, level)
                yield manifest, finding


def _adds_first(manifest: Manifest) -> bool:
    """Tell whether a Deployment of one pod is updated by a second one."""
    strategy = mapping(manifest.spec.get("strategy"))
    rolling = mapping((strategy or {}).get("rollingUpdate")) or {}
    most = rolling.get("maxUnavailable", "25%")
    return (
        strategy is not None
        and strategy.get("type", "RollingUpdate") == "RollingUpdate"
        and str(most) not in {"1", "100%"}
        and not is_placeholder(str(most))
    )


def _is_disk(claim: Manifest, together: ManifestSet) -> bool:
    """Tell a claim of an EBS volume, by its class; EFS and FSx attach nothing to a node."""
    name = text(claim.spec.get("storageClassName"))
    made = together.named(claim, "StorageClass", name) if name else None
    if made is not None:
        return text(made.body.get("provisioner")) in {"ebs.csi.aws.com", "kubernetes.io/aws-ebs"}
    return name is not None and _OF_DISKS.search(name) is not None


def _claims(manifest: Manifest, pod: Pod, together: ManifestSet) -> Iterator[tuple[int, Manifest]]:
    for index, value in enumerate(items(pod.spec.get("volumes")) or []):
        source = mapping((mapping(value) or {}).get("persistentVolumeClaim")) or {}
        name = text(source.get("claimName"))
        claim = together.named(manifest, "PersistentVolumeClaim", name) if name else None
        if claim is not None:
            yield index, claim
