"""Paths that a container's words name, and the volumes that it mounts at some."""

import re
from collections.abc import Iterator

from megatron_eks.config.errors import Path
from megatron_eks.rules.jobs.training_flags import split_words
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import Container, Pod

PATH = re.compile(r"/[\w.-]+(/[\w.-]+)*/?")
"""A path of the container that a word is altogether."""
_KEPT = frozenset({"emptyDir", "ephemeral", "hostPath", "persistentVolumeClaim"})


def kept(pod: Pod) -> set[str]:
    """Return the names of the pod's volumes that have what a container wrote before."""
    volumes = [mapping(each) or {} for each in items(pod.spec.get("volumes")) or []]
    return {text(each.get("name")) or "" for each in volumes if not _KEPT.isdisjoint(each)}


def mounts(container: Container) -> Iterator[tuple[str, str]]:
    """Return where a container mounts something, with the volume's name."""
    for value in items(container.body.get("volumeMounts")) or []:
        mount = mapping(value) or {}
        place = (text(mount.get("mountPath")) or "").rstrip("/")
        if place:
            yield place, text(mount.get("name")) or ""


def paths(container: Container) -> Iterator[tuple[Path, str]]:
    """Return the paths among a container's words, and behind the `=` of its options."""
    for path, line in container.words:
        for word in split_words(line):
            value = word.partition("=")[2] if word.startswith("-") else word.lstrip(">")
            if PATH.fullmatch(value):
                yield path, value


def inside(directory: str, place: str) -> bool:
    """Tell whether a directory is a place, or below it."""
    return f"{directory.rstrip('/')}/".startswith(f"{place.rstrip('/')}/")
