"""Rules over Megatron-LM's options that do not fit each other or the container's mounts."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.training_flags import megatron_flags
from megatron_eks.rules.values import is_placeholder, items, mapping, number, shown, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_WRITTEN = ("--save", "--tensorboard-dir", "--data-cache-path")
_EVENLY = (
    ("--num-attention-heads", "--tensor-model-parallel-size", "attention heads"),
    ("--hidden-size", "--num-attention-heads", "hidden size"),
    ("--num-attention-heads", "--num-query-groups", "attention heads"),
    ("--num-experts", "--expert-model-parallel-size", "experts"),
    ("--train-samples", "--global-batch-size", ""),
)
_NOT_ABOVE = (
    ("--seq-length", "--max-position-embeddings", "Megatron stops at once"),
    ("--save-interval", "--train-iters", "no checkpoint before the end"),
    ("--lr-warmup-iters", "--train-iters", "the warm-up never ends"),
    ("--micro-batch-size", "--global-batch-size", "Megatron stops at once"),
    ("--moe-router-topk", "--num-experts", "Megatron stops at once"),
)

Options = dict[str, tuple[Path, str]]


def numbers(manifest: Manifest) -> Iterator[Finding]:
    """Require numbers that Megatron-LM takes together.

    Megatron-LM, megatron/training/arguments.py, validate_args, and
    megatron/core/transformer/transformer_config.py (core_v0.19).
    """
    for pod in manifest.pods:
        for container in pod.containers:
            options = _options(container)
            for flag, other, what in _EVENLY if options else ():
                value, by = _number(options, flag), _number(options, other)
                if value and by and what and value % by and not _is_free(options, flag, other):
                    found = f"{value} {what}, which {other} {by} does not divide: Megatron stops"
                    path = options[flag][0]
                    yield Finding(Code.TRAINING_FLAG, path, found, f"use a multiple of {by}")
            for flag, other, why in _NOT_ABOVE if options else ():
                value, most = _number(options, flag), _number(options, other)
                if value and most and value > most:
                    found = f"{flag} {value} above {other} {most}: {why}"
                    stops = "stops" in why
                    level = Level.ERROR if stops else Level.WARNING
                    path = options[flag][0]
                    yield Finding(Code.TRAINING_FLAG, path, found, f"use {most} or less", level)
            saves = "--save" in options and "--save-interval" not in options
            if saves and "$" not in container.line and "--config-file" not in options:
                found = "--save without --save-interval: Megatron stops at once"
                path = options["--save"][0]
                yield Finding(Code.TRAINING_FLAG, path, found, "add --save-interval")


def _is_free(options: Options, flag: str, other: str) -> bool:
    """Tell whether another option takes the relation away."""
    return flag == "--hidden-size" and "--kv-channels" in options and other != ""


def _options(container: Container) -> Options:
    """Return the options of Megatron; none where one is given twice, or by a shell."""
    found: Options = {}
    for path, flag, value in megatron_flags(container):
        if flag in found or is_placeholder(value):
            return {}
        found[flag] = (path, value)
    return found


def _number(options: Options, flag: str) -> int | None:
    return number(options[flag][1]) if flag in options else None


def read_only(manifest: Manifest) -> Iterator[Finding]:
    """Refuse that a job writes to what is mounted for reading.

    Kubernetes API reference, VolumeMount.readOnly and PersistentVolumeClaimVolumeSource.readOnly:
    the first checkpoint ends with "Read-only file system", hours after the start.
    """
    for pod in manifest.pods if manifest.is_job else ():
        closed = _closed(pod)
        for container in pod.containers:
            mounts = [
                mapping(each) or {} for each in items(container.body.get("volumeMounts")) or []
            ]
            for path, flag, value in megatron_flags(container):
                if flag not in _WRITTEN or not value.startswith("/"):
                    continue
                inside = [
                    each
                    for each in mounts
                    if f"{value}/".startswith(
                        f"{(text(each.get('mountPath')) or '?').rstrip('/')}/"
                    )
                ]
                mount = max(inside, key=lambda each: len(str(each.get("mountPath"))), default={})
                name = text(mount.get("name"))
                if mount.get("readOnly") is True or name in closed:
                    found = f"{flag} {shown(value)}, where {shown(name)} is mounted for reading"
                    remedy = "remove readOnly, or write elsewhere"
                    yield Finding(Code.LOST_OUTPUT, path, found, remedy)


def _closed(pod: Pod) -> set[str]:
    """Return the volumes that nobody can write to."""
    found = set()
    for value in items(pod.spec.get("volumes")) or []:
        volume = mapping(value) or {}
        claim = mapping(volume.get("persistentVolumeClaim")) or {}
        kept = any(key in volume for key in ("configMap", "downwardAPI", "projected", "secret"))
        if claim.get("readOnly") is True or kept:
            found.add(str(volume.get("name")))
    return found
