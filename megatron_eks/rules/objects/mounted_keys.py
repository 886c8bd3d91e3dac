"""Rules over single keys of a ConfigMap or Secret that a pod mounts."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Path
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest, Pod

_SOURCES = (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"))


def keys(together: ManifestSet) -> Iterator[Found]:
    """Require of a subPath, and of the items of a volume, a key that its source has.

    Kubernetes, "Volumes", subPath, and "Configure a Pod to Use a ConfigMap": of a missing key the
    kubelet makes an empty directory by its name, or does not mount the volume at all.
    """
    for manifest in together.objects:
        for pod in manifest.pods:
            known = dict(_files(manifest, pod, together))
            for container in pod.containers:
                for index, value in enumerate(items(container.body.get("volumeMounts")) or []):
                    mount = mapping(value) or {}
                    part, name = text(mount.get("subPath")), text(mount.get("name"))
                    files = known.get(name or "")
                    if not part or not files or is_placeholder(part) or _has(part, files):
                        continue
                    found = f"{shown(part)} is no key of volume {shown(name)}: an empty directory "
                    found += "stands at its place"
                    path: Path = (*container.path[1:], "volumeMounts", index, "subPath")
                    remedy = f"there: {', '.join(sorted(files))}"
                    yield manifest, manifest.find(Code.FILE_NOT_MOUNTED, path, found, remedy)


def _has(part: str, files: set[str]) -> bool:
    return any(f"{each}/".startswith(f"{part.strip('/')}/") for each in files)


def _files(manifest: Manifest, pod: Pod, together: ManifestSet) -> Iterator[tuple[str, set[str]]]:
    """Return the files of each volume whose source is at hand."""
    for value in items(pod.spec.get("volumes")) or []:
        volume = mapping(value) or {}
        name = text(volume.get("name"))
        for key, kind, name_key in _SOURCES:
            source = mapping(volume.get(key)) or {}
            of = text(source.get(name_key))
            target = together.named(manifest, kind, of) if of else None
            if name is None or target is None:
                continue
            listed = [
                text((mapping(each) or {}).get("path")) for each in items(source.get("items")) or []
            ]
            parts = [
                mapping(target.body.get(each)) for each in ("data", "binaryData", "stringData")
            ]
            if None in parts or None in listed:
                continue
            there = {each for part in parts for each in part or {}}
            yield name, {each for each in listed if each} or there
