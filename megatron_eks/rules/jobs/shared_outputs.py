"""Rules over jobs, and pods of one job, that write to one place, and what kind of place."""

import posixpath
import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.output_places import CHECKPOINTS, Output, outputs_of, place_of
from megatron_eks.rules.jobs.prepared_data import PREPARES
from megatron_eks.rules.jobs.training_flags import megatron_words, options_of, split_words
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.directory_owners import handle_of, volume_of
from megatron_eks.rules.values import is_placeholder, mapping, number, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

_Where = tuple[str, str]
_FSDP = re.compile(r"fsdp", re.IGNORECASE)


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


def copies(manifest: Manifest) -> Iterator[Finding]:
    """Warn of a Job whose pods all write one tokenized file, each over what the others wrote.

    Kubernetes, "Jobs", completions and parallelism: pods of one Job are the same but for their
    index. Megatron-LM, tools/preprocess_data.py: it opens PREFIX_text_document.bin anew.
    """
    counts = [number(manifest.spec.get(key)) or 1 for key in ("completions", "parallelism")]
    if (manifest.group, manifest.kind) != ("batch", "Job") or max(counts) == 1:
        return
    for pod in manifest.pods:
        for container in pod.containers:
            if not PREPARES.search(container.line):
                continue
            words = [(path, word) for path, line in container.words for word in split_words(line)]
            for path, flag, value in options_of(words):
                place = place_of(value, container, pod) if value.startswith("/") else None
                shared = place is not None and "persistentVolumeClaim" in place.volume
                own = place is not None and "subPathExpr" in place.mount
                if flag.replace("_", "-") == "--output-prefix" and shared and not own:
                    if "$" in value or is_placeholder(value):
                        continue
                    found = f"{flag} {shown(value)} in each of {max(counts)} pods: they write over "
                    found += "each other, and the files are of no use"
                    remedy = "use one pod with more --workers, or completionMode: Indexed and "
                    remedy += "$JOB_COMPLETION_INDEX in both input and output"
                    yield Finding(Code.LOST_OUTPUT, path, found, remedy, Level.WARNING)


def in_buckets(together: ManifestSet) -> Iterator[Found]:
    """Warn of checkpoints on a bucket that Mountpoint for S3 shows as a file system.

    mountpoint-s3, doc/SEMANTICS.md and issue 506: in a general purpose bucket no file is renamed,
    and none is changed but as a whole. torch.distributed.checkpoint, filesystem.py, writes
    .metadata.tmp and renames it; Megatron-LM writes latest_checkpointed_iteration.txt again.
    """
    for manifest in together.objects:
        for pod in manifest.pods if manifest.is_job else ():
            for container in pod.containers:
                if container.is_init or not _renames(container):
                    continue
                for output in outputs_of(container):
                    volume = _volume(manifest, pod, container, output, together)
                    if output.kind in CHECKPOINTS and volume is not None and _is_bucket(volume):
                        found = f"{output.flag} {shown(output.value)} is on {volume.title}, a "
                        found += "bucket by Mountpoint for S3, which renames no file: the first "
                        found += "checkpoint is never finished"
                        remedy = "save to FSx for Lustre, and export from there to S3"
                        code, level = Code.LOST_OUTPUT, Level.WARNING
                        yield manifest, manifest.find(code, output.path[1:], found, remedy, level)


def _renames(container: Container) -> bool:
    """Tell a program that surely saves by torch.distributed.checkpoint."""
    return bool(megatron_words(container)) or _FSDP.search(container.line) is not None


def _volume(
    manifest: Manifest, pod: Pod, container: Container, output: Output, together: ManifestSet
) -> Manifest | None:
    place = place_of(output.value, container, pod)
    claim = mapping(place.volume.get("persistentVolumeClaim")) if place else None
    name = text((claim or {}).get("claimName"))
    return volume_of(manifest, name, together) if name is not None else None


def _is_bucket(volume: Manifest) -> bool:
    """Tell a volume of a general purpose bucket; a directory bucket's name ends in --x-s3."""
    source = mapping(volume.spec.get("csi")) or {}
    name = text((mapping(source.get("volumeAttributes")) or {}).get("bucketName")) or ""
    plain = bool(name) and not is_placeholder(name) and not name.endswith("--x-s3")
    return source.get("driver") == "s3.csi.aws.com" and plain
