"""Rule over jobs that save to one directory."""

import posixpath
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.rules.directory_owners import handle_of
from megatron_eks.rules.manifest_set import Found, ManifestSet
from megatron_eks.rules.output_places import CHECKPOINTS, Output, outputs_of, place_of
from megatron_eks.rules.values import is_placeholder, mapping, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

_Where = tuple[str, str]


def directories(together: ManifestSet) -> Iterator[Found]:
    """Warn of two jobs of one file that save into one directory of one claim.

    Megatron-LM, megatron/training/checkpointing.py: iterations of both lie in one directory, and
    latest_checkpointed_iteration.txt is of the last writer, from which each of them goes on. Files
    of one folder may be meant to be applied one or the other.
    """
    seen: dict[tuple[str, _Where], Manifest] = {}
    for manifest in together.objects:
        places = _directories(manifest, together) if manifest.is_job else {}
        for where, (path, value) in places.items():
            first = seen.setdefault((manifest.file, where), manifest)
            if first is not manifest:
                found = f"saves to {shown(value)}, and so does {first.title}: each goes on from"
                found += " what the other saved last"
                remedy = "give each a directory of its own"
                code, level = Code.SHARED_CHECKPOINTS, Level.WARNING
                yield manifest, manifest.find(code, path[1:], found, remedy, level)


def _directories(manifest: Manifest, together: ManifestSet) -> dict[_Where, tuple[Path, str]]:
    found: dict[_Where, tuple[Path, str]] = {}
    for pod in manifest.pods:
        for container in pod.containers:
            if container.is_init or not container.names(GPU):
                continue
            for output in outputs_of(container):
                where = _where(manifest, pod, container, output, together)
                if output.kind in CHECKPOINTS and where is not None:
                    found.setdefault(where, (output.path, output.value))
    return found


def _where(
    manifest: Manifest, pod: Pod, container: Container, output: Output, together: ManifestSet
) -> _Where | None:
    """Return the storage and the directory on it."""
    place = place_of(output.value, container, pod)
    claim = mapping(place.volume.get("persistentVolumeClaim")) if place else None
    name = text((claim or {}).get("claimName"))
    if place is None or name is None or "subPathExpr" in place.mount or is_placeholder(name):
        return None
    inside = posixpath.relpath(output.value, str(place.mount.get("mountPath")))
    below = posixpath.join(text(place.mount.get("subPath")) or "", inside)
    storage = handle_of(manifest, name, together) or f"{manifest.namespace}/{name}"
    return storage, posixpath.normpath(below)
