"""Rule over pods and the zone of the volumes that they mount."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.node_pools import wanted_labels
from megatron_eks.rules.values import is_placeholder, items, mapping, text
from megatron_eks.rules.workloads import Manifest, Pod

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
    for value in items((mapping(term) or {}).get("matchExpressions")) or []:
        body = mapping(value) or {}
        if body.get("key") in _ZONES and body.get("operator") == "In":
            yield from (str(each) for each in items(body.get("values")) or [])
