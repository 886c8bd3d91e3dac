"""Rule over volumes of a pod that none of its containers mounts."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_KEYS = ("containers", "ephemeralContainers", "initContainers")
_MOUNTS = ("volumeDevices", "volumeMounts")


def unmounted(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a volume that is made for a pod, and that no container of it mounts.

    Kubernetes, "Volumes", how volumes work: a container sees a volume only where it mounts it.
    """
    for pod in manifest.pods:
        mounted = _mounted(pod)
        volumes = [mapping(each) or {} for each in items(pod.spec.get("volumes")) or []]
        # A mount of a volume that is not there is a finding of its own, and may mean this one.
        if mounted is None or not mounted <= {text(each.get("name")) for each in volumes}:
            continue
        for index, volume in enumerate(volumes):
            name = text(volume.get("name"))
            # One of the node's is made there by asking for it, as NVIDIA's operator does.
            of_node = not is_absent(volume.get("hostPath"))
            if name is not None and name not in mounted and not of_node:
                found = f"no container mounts {shown(name)}: what is written to its place stays in "
                found += "the container, and what is to be read there is missing"
                remedy = "add it to volumeMounts, with its mountPath, or remove it"
                if _is_memory(volume) and not _has_shared_memory(pod):
                    found = f"no container mounts {shown(name)}, so /dev/shm keeps its 64 MiB: the "
                    found += "loader's workers, and NCCL inside the node, end with a bus error"
                    remedy = f"add {{name: {name}, mountPath: /dev/shm}} to volumeMounts"
                path = (*pod.path, "volumes", index)
                yield Finding(Code.UNKNOWN_VOLUME, path, found, remedy, Level.WARNING)


def _mounted(pod: Pod) -> set[str] | None:
    """Return the names of all volumes that are mounted.

    None where a part is not known, or no mount at all is written: such a pod is a sketch.
    """
    found: set[str] = set()
    for key in _KEYS:
        for container in items(pod.spec.get(key)) or []:
            body = mapping(container)
            listed = [items((body or {}).get(each)) for each in _MOUNTS]
            # A patch names what it changes; somebody else's object has the image and the mounts.
            if not body or None in listed or is_absent(body.get("image")):
                return None
            mounts = [mapping(each) or {} for every in listed for each in every or []]
            found |= {name for each in mounts if (name := text(each.get("name"))) is not None}
    return found or None


def _is_memory(volume: "dict[str, Json]") -> bool:
    return (mapping(volume.get("emptyDir")) or {}).get("medium") == "Memory"


def _has_shared_memory(pod: Pod) -> bool:
    mounts = [
        mapping(each) or {}
        for one in pod.containers
        for each in items(one.body.get("volumeMounts")) or []
    ]
    return any(each.get("mountPath") == "/dev/shm" for each in mounts)  # noqa: S108 -- in the pod
