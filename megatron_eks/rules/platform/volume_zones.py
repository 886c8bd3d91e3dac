"""Rules over the zones of volumes, of the pods that mount them, and of what is beside them."""

import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, in_one_folder
from megatron_eks.rules.objects.node_pools import wanted_labels
from megatron_eks.rules.values import is_placeholder, items, mapping, text
from megatron_eks.rules.workloads import Manifest, Pod

_ZONE = re.compile(r"([a-z]{2}(?:-[a-z]+)+-[0-9])[a-z]")
_IN_NAME = re.compile(r"\bfs-[0-9a-f]+\.(?:fsx|efs)\.([a-z]{2}(?:-[a-z]+)+-[0-9])\.")
_ZONES = ("topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone")


def zones(together: ManifestSet) -> Iterator[Found]:
    """Refuse pods in another zone than a volume that they mount.

    Kubernetes, "Persistent Volumes", node affinity: the scheduler finds no node that has both; EBS
    User Guide, "Attach an Amazon EBS volume to an instance": within one zone only.
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            wanted = {
                said for key, values in wanted_labels(pod) if key in _ZONES for said in values
            }
            if not wanted or any(is_placeholder(each) for each in wanted):
                continue
            for index, volume in _volumes(manifest, pod, together):
                there = _of_volume(volume)
                if there and there.isdisjoint(wanted):
                    found = f"{volume.title} is in {', '.join(sorted(there))}, and the pod only in "
                    found += f"{', '.join(sorted(wanted))}: it stays Pending"
                    path = (*pod.path[1:], "volumes", index)
                    remedy = "use one zone for both"
                    yield manifest, manifest.find(Code.CLAIM_AND_VOLUME, path, found, remedy)


def _volumes(manifest: Manifest, pod: Pod, together: ManifestSet) -> Iterator[tuple[int, Manifest]]:
    for index, value in enumerate(items(pod.spec.get("volumes")) or []):
        source = mapping((mapping(value) or {}).get("persistentVolumeClaim")) or {}
        name = text(source.get("claimName"))
        claim = together.named(manifest, "PersistentVolumeClaim", name) if name else None
        volume_name = text(claim.spec.get("volumeName")) if claim is not None else None
        if claim is not None and volume_name:
            volume = together.named(claim, "PersistentVolume", volume_name)
            if volume is not None:
                yield index, volume


def _of_volume(volume: Manifest) -> set[str]:
    """Return the zones of a volume, if every way to it names some."""
    affinity = mapping(volume.spec.get("nodeAffinity")) or {}
    terms = items((mapping(affinity.get("required")) or {}).get("nodeSelectorTerms")) or []
    found = [set(_of_term(each)) for each in terms]
    return set().union(*found) if found and all(found) else set()


def _of_term(term: Json) -> Iterator[str]:
    yield from _said(items((mapping(term) or {}).get("matchExpressions")))


def _said(demands: "list[Json] | None") -> Iterator[str]:
    for value in demands or []:
        body = mapping(value) or {}
        if body.get("key") in _ZONES and body.get("operator", "In") == "In":
            yield from (str(each) for each in items(body.get("values")) or [])


def regions(together: ManifestSet) -> Iterator[Found]:
    """Warn of a volume in a region in which nothing else of its folder is.

    EBS User Guide, "Attach an Amazon EBS volume to an instance", and Kubernetes, "Persistent
    Volumes", node affinity: no node of the cluster ever has the zone, so its pods stay Pending.
    """
    said = [(each, set(_regions_of(each))) for each in together.objects]
    for volume in together.of("PersistentVolume"):
        own = set(_regions_of(volume))
        beside = [
            found for each, found in said if each is not volume and in_one_folder(each, volume)
        ]
        others = set().union(*beside)
        if own and others and own.isdisjoint(others):
            places = _of_volume(volume)
            found = f"{', '.join(sorted(places or own))}, and what is beside it is in "
            found += f"{', '.join(sorted(others))}: no node of that cluster "
            found += "has it" if places else "reaches it by this name"
            path: Path = ("spec", "nodeAffinity" if places else "csi")
            remedy = "write the zone of the volume, in the cluster's region"
            if not places:
                remedy = "name the file system of the cluster's region, with the address it has"
            finding = volume.find(Code.CLAIM_AND_VOLUME, path, found, remedy, Level.WARNING)
            yield volume, finding


def _regions_of(manifest: Manifest) -> Iterator[str]:
    """Return the regions that an object names: a cluster's, of zones, of file systems."""
    if manifest.kind == "ClusterConfig":
        region = text((mapping(manifest.body.get("metadata")) or {}).get("region"))
        if region is not None and _ZONE.fullmatch(f"{region}a"):
            yield region
    zones_there = {*_of_volume(manifest)} if manifest.kind == "PersistentVolume" else set()
    for each in items(manifest.body.get("allowedTopologies")) or []:
        zones_there |= set(_said(items((mapping(each) or {}).get("matchLabelExpressions"))))
    node = mapping((mapping(manifest.spec.get("template")) or {}).get("spec")) or {}
    zones_there |= set(_said(items(node.get("requirements"))))  # of Karpenter's NodePool
    for pod in manifest.pods:
        zones_there |= {
            said for key, values in wanted_labels(pod) if key in _ZONES for said in values
        }
    for match in (_ZONE.fullmatch(each) for each in zones_there):
        if match is not None:
            yield match[1]
    csi = mapping(manifest.spec.get("csi")) or {}
    attributes = mapping(csi.get("volumeAttributes")) or {}
    if match := _IN_NAME.match(text(attributes.get("dnsname")) or ""):
        yield match[1]
