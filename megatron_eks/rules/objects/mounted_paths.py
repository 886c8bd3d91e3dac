"""Rule over files of a ConfigMap that a container starts where their mount has none."""

import posixpath
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.objects.mounted_scripts import started
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import Manifest

_SCRIPTS = (".sh", ".py", ".bash")


def mounts(manifest: Manifest) -> Iterator[Finding]:
    """Refuse to start a file below a mount that is a file, or by a mount that is a directory.

    Kubernetes, "Volumes", subPath: with it the mount is that one key, and without it a directory
    that holds every key ("Is a directory", "Not a directory").
    """
    for pod in manifest.pods:
        volumes = {
            text(body.get("name"))
            for each in items(pod.spec.get("volumes")) or []
            if (body := mapping(each)) and mapping(body.get("configMap"))
        }
        for container in pod.containers:
            start = started(container)
            called = start[1] if start is not None else ""
            if not called.endswith(_SCRIPTS):
                continue
            for index, value in enumerate(items(container.body.get("volumeMounts")) or []):
                mount = mapping(value) or {}
                place, part = text(mount.get("mountPath")), text(mount.get("subPath"))
                if not place or text(mount.get("name")) not in volumes:
                    continue
                path = (*container.path, "volumeMounts", index)
                name = posixpath.basename(called)
                if (
                    posixpath.normpath(place) == called
                    and part is None
                    and "subPathExpr" not in mount
                ):
                    found = f"a directory by the name of {called}, and the container starts it"
                    remedy = f"add subPath: {name}, or mount it at {posixpath.dirname(called)}"
                    where = (*path, "mountPath")
                    yield Finding(Code.FILE_NOT_MOUNTED, where, found, remedy)
                elif part == name and posixpath.dirname(called) == posixpath.normpath(place):
                    found = f"{place} is the file {part} itself, so there is no {called}"
                    remedy = f"remove subPath, or write mountPath: {called}"
                    where = (*path, "subPath")
                    yield Finding(Code.FILE_NOT_MOUNTED, where, found, remedy)
