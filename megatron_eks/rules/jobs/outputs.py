"""Rules over directories that training writes: whether that works, and whether it stays."""

import re
from collections.abc import Iterator

from megatron_eks.catalog.environment_folders import WRITTEN
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.jobs.apart_places import is_one_of_several
from megatron_eks.rules.jobs.output_places import (
    CHECKPOINTS,
    LOGS,
    Output,
    directory_in,
    mounted,
    outputs_of,
    place_of,
    writable,
)
from megatron_eks.rules.jobs.training_flags import megatron_flags, megatron_words
from megatron_eks.rules.objects.pod_needs import has_closed_root, lacks_scratch
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import GPU, Container, Manifest, Pod

_TRAINS = re.compile(r"train|tune|fsdp|sft", re.IGNORECASE)
_COPIED = re.compile(r"\bs3 (sync|cp|mv)\b|\brclone\b|\bs5cmd\b|\brsync\b|\bazcopy\b|\bgsutil\b")
_INPUTS = ("--data-path", "--train-data-path", "--valid-data-path")
_PERHAPS_IN_IMAGE = frozenset(
    {
        *("--load", "--merge-file", "--pretrained-checkpoint", "--tokenizer-model"),
        "--vocab-file",
    }
)
# Where images have their own files.
_OF_IMAGES = re.compile(
    r"/(app|code|etc|home|megatron|opt|root|src|srv|usr|workspace)\b", re.IGNORECASE
)
_SCRATCH = "/tmp"  # noqa: S108 -- inside a container
# Each of these is slow on a file system of all ranks, or waits there for one lock.
_OF_EACH_NODE = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"})


def checkpoints(manifest: Manifest) -> Iterator[Finding]:
    """Warn of checkpoints in a directory that goes with the pod, or stays on one node.

    Kubernetes, "Volumes", emptyDir, generic ephemeral and hostPath volumes; of nested mounts the
    longest path decides. Megatron-LM and torchrun start again from the directory they save to, on
    whichever node.
    """
    for pod in manifest.pods if manifest.is_job else ():
        # What another container or the script itself carries away is not lost.
        if any(_COPIED.search(each.line) for each in pod.containers if not each.is_init):
            continue
        for container in pod.containers:
            if container.is_init or not container.names(GPU):
                continue
            lost = (
                (output, said)
                for output in outputs_of(container)
                if output.kind in CHECKPOINTS and (said := _lost(output, container, pod))
            )
            if (first := next(lost, None)) is not None:
                yield _is_lost(manifest, pod, container, *first)


def _is_lost(
    manifest: Manifest, pod: Pod, container: Container, output: Output, said: str
) -> Finding:
    """Say where to save instead: on a claim that is mounted beside it, or on one that is not."""
    place = place_of(output.value, container, pod)
    found = f"{output.flag} {output.value} {said}"
    level, flags = Level.WARNING, output.flag
    if place is not None and place.goes_with_pod and _is_resumed(manifest, container, output):
        flags = "--save and --load"
        found += ", and each node has a part of the checkpoint that all of them load"
        level = Level.ERROR
    path: Path = (*container.path, "volumeMounts")
    remedy = "mount the shared file system's claim there"
    covered = place is not None and place.claim_above is not None
    if not covered and (claims := writable(container, pod, claims=True)):
        path = output.path
        each = "one of " if ", " in claims else ""
        remedy = f"write {flags} below {each}{claims}, which is mounted"
    return Finding(Code.CHECKPOINTS_LOST, path, found, remedy, level)


def _is_resumed(manifest: Manifest, container: Container, output: Output) -> bool:
    """Tell whether ranks of several pods load what they save.

    Megatron-LM, megatron/training/checkpointing.py: rank 0 alone writes the metadata and the number
    of the last iteration; a benchmark that only saves may well use the pod's own disk.
    """
    loads = [value for _, flag, value in megatron_flags(container) if flag == "--load"]
    again = any(directory_in(container, value) == output.value for value in loads)
    return again and output.kind == "--save" and is_one_of_several(manifest, container)


def _lost(output: Output, container: Container, pod: Pod) -> str | None:
    """Say how a directory is lost."""
    place = place_of(output.value, container, pod)
    if place is None:
        return None
    over = f", mounted over the claim at {place.claim_above}" if place.claim_above else ""
    if place.goes_with_pod:
        volume = (
            f"on {shown(place.name)}{over}, which is made for the pod" if over else "in the pod"
        )
        return f"is {volume}, and goes with it"
    if place.node_disk and (over or (pod.replicas or 1) > 1):
        return f"is on the node's own {place.node_disk}{over}: a restart elsewhere does not find it"
    # What Megatron writes where nothing is mounted is found with its other options.
    bare = not place.mount and output.kind != "--save" and not megatron_words(container)
    bare = bare and not has_closed_root(container)  # refused as what cannot be written
    return "is in the pod, and goes with it" if bare else None


def in_s3(manifest: Manifest) -> Iterator[Finding]:
    """Refuse checkpoints of Megatron-LM at an address of S3.

    Megatron-LM, megatron/training/checkpointing.py: apart from msc://, which the Multi-Storage
    Client reads, os.makedirs makes a directory of that very name in the container.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for path, flag, named in megatron_flags(container):
                value = directory_in(container, named)
                if flag in {"--load", "--save"} and value.startswith("s3://"):
                    found = f"{flag} {shown(value)}: Megatron takes it for a directory in the "
                    found += "container, which goes with the pod"
                    remedy = "save to a mounted claim, and copy from there to S3"
                    yield Finding(Code.LOST_OUTPUT, path, found, remedy)


def unmounted(manifest: Manifest) -> Iterator[Finding]:
    """Warn of checkpoints and logs of Megatron-LM where the container mounts nothing.

    Kubernetes, "Volumes": on-disk files in a container are lost with it.
    """
    for pod in manifest.pods if manifest.is_job or manifest.kind == "Pod" else ():
        for container in pod.containers:
            if container.is_init or not megatron_words(container):
                continue
            for output in outputs_of(container):
                place = place_of(output.value, container, pod)
                # A root that is closed for writing is refused with it.
                closed = manifest.is_job and has_closed_root(container)
                lost = output.kind in CHECKPOINTS | LOGS and not closed
                if lost and place is not None and not place.mount:
                    found = f"{output.flag} {shown(output.value)}, where nothing is mounted: it "
                    remedy = f"write to a mounted claim; mounted: {mounted(container)}"
                    yield Finding(
                        Code.LOST_OUTPUT,
                        output.path,
                        found + "goes with the pod",
                        remedy,
                        Level.WARNING,
                    )


def inputs(manifest: Manifest) -> Iterator[Finding]:
    """Warn of Megatron-LM's data where the container mounts nothing, and a claim elsewhere.

    Kubernetes, "Volumes": a container sees what is mounted, and its image; no image of a program
    holds a corpus.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            if container.is_init or not _has_claim(container, pod):
                continue
            saved = {each.value for each in outputs_of(container)}
            for path, flag, named in megatron_flags(container):
                value = directory_in(container, named)
                in_image = flag in _PERHAPS_IN_IMAGE
                judged = flag in _INPUTS or (in_image and not _OF_IMAGES.match(value))
                if not judged or not value.startswith("/") or is_placeholder(value):
                    continue
                place = place_of(value, container, pod)
                # What is saved to the same place has a finding already.
                if place is not None and not place.mount and value not in saved:
                    found = f"{flag} {shown(value)}, where nothing is mounted: it is not found"
                    remedy = f"name a path on a mounted claim; mounted: {mounted(container)}"
                    if in_image:
                        remedy += "; unless the image has it"
                    yield Finding(Code.LOST_OUTPUT, path, found, remedy, Level.WARNING)


def _has_claim(container: Container, pod: Pod) -> bool:
    claims = {
        text(volume.get("name"))
        for each in items(pod.spec.get("volumes")) or []
        if "persistentVolumeClaim" in (volume := mapping(each) or {})
    }
    mounts = items(container.body.get("volumeMounts")) or []
    return any(text((mapping(each) or {}).get("name")) in claims - {None} for each in mounts)


def read_only(manifest: Manifest) -> Iterator[Finding]:
    """Refuse that a job writes to what is mounted for reading.

    Kubernetes API reference, VolumeMount.readOnly, PersistentVolumeClaimVolumeSource.readOnly and
    SecurityContext.readOnlyRootFilesystem: the first checkpoint ends with "Read-only file system",
    hours after the start.
    """
    for pod in manifest.pods if manifest.is_job else ():
        for container in pod.containers:
            trains = bool(megatron_words(container)) or _may_train(container)
            for output in outputs_of(container) if trains else ():
                place = place_of(output.value, container, pod)
                if place is None:
                    continue
                told = f"{output.flag} {shown(output.value)}"
                if place.is_closed:
                    found = f"{told}, where {shown(place.name)} is mounted for reading"
                    remedy = "remove readOnly, or write elsewhere"
                    level = _level(output, container)
                    yield Finding(Code.LOST_OUTPUT, output.path, found, remedy, level)
                elif not place.mount and has_closed_root(container):
                    found = f"{told} is on the image's own file system, which is closed for writing"
                    claims = writable(container, pod, claims=True)
                    remedy = "mount a claim there"
                    remedy += f", or write to one that is mounted: {claims}" if claims else ""
                    remedy += "; readOnlyRootFilesystem is true"
                    yield Finding(Code.LOST_OUTPUT, output.path, found, remedy)


def variables(manifest: Manifest) -> Iterator[Finding]:
    """Refuse a variable that names a place to write on a root that is closed for writing.

    Kubernetes API reference, SecurityContext.readOnlyRootFilesystem; NCCL user guide,
    "NCCL_DEBUG_FILE"; Triton, TRITON_CACHE_DIR; Hugging Face Hub, HF_HOME.
    """
    for pod in manifest.pods:
        for container in pod.containers:
            for each in container.variables if has_closed_root(container) else ():
                value = each.value or ""
                if each.name not in WRITTEN or not value.startswith("/"):
                    continue
                in_scratch = f"{value}/".startswith(f"{_SCRATCH}/")
                place = place_of(value, container, pod) if not is_placeholder(value) else None
                # What torchrun lacks in the same place is a finding of its own.
                told = in_scratch and lacks_scratch(manifest, container)
                if place is not None and not place.mount and not told:
                    found = f"{each.name} is on the image's own file system, which is closed for "
                    found += "writing"
                    path = (*container.path, "env", each.index, "value")
                    remedy = "mount an emptyDir at /tmp"
                    if not in_scratch:
                        alone = each.name in _OF_EACH_NODE
                        there = writable(container, pod, claims=False if alone else None)
                        remedy += ", and name a path there" if not there else ""
                        remedy = f"name a path on a mount: {there}" if there else remedy
                    yield Finding(Code.LOST_OUTPUT, path, found, remedy)


def _may_train(container: Container) -> bool:
    return container.names(GPU) and not container.is_init


def _level(output: Output, container: Container) -> Level:
    """Return a warning where a program that does not train may only read its checkpoints."""
    maybe_read = output.kind.endswith(("checkpoint-dir", "checkpoints-dir", "ckpt-dir"))
    surely = not maybe_read or _TRAINS.search(container.line) is not None
    return Level.ERROR if surely else Level.WARNING
