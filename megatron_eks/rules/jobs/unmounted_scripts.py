"""Rule over scripts that a ConfigMap holds, and that a container starts without mounting it."""

import posixpath
import re
from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, references
from megatron_eks.rules.objects.mounted_files import is_in, mounts_of
from megatron_eks.rules.values import mapping
from megatron_eks.rules.workloads import Container, Manifest

_SCRIPT = re.compile(r"(?<![\w./-])(/[\w.-]+(?:/[\w.-]+)*\.(?:sh|bash|py))(?![\w./-])", re.ASCII)
# Whatever is fetched, written or unpacked may bring the file.
_BRINGS = re.compile(r">|\b(cp|mv|ln|tee|tar|unzip|install|rsync|git|curl|wget|aws|base64|s5cmd)\b")
_TOLD = ("/dev/", "/etc/", "/opt/", "/usr/")


def unmounted(together: ManifestSet) -> Iterator[Found]:
    """Warn of a script that stands in a ConfigMap which the pod that starts it does not mount.

    Kubernetes, "Configure a Pod to Use a ConfigMap": its keys are files where it is mounted. An
    image may have a file of that name, so silence where another object takes the ConfigMap.
    """
    configs = together.of("ConfigMap")
    taken = {
        (each.kind, each.name)
        for manifest in together.objects
        for each in (references(manifest) if configs else ())
    }
    free = [each for each in configs if ("ConfigMap", each.name) not in taken]
    for manifest in together.objects if free else ():
        for pod in manifest.pods:
            for container in pod.containers:
                mounts = mounts_of(pod, container)
                if mounts is not None:
                    places = [place for place, _ in mounts]
                    yield from _of_container(manifest, container, places, free, together)


def _of_container(
    manifest: Manifest,
    container: Container,
    places: list[str],
    free: list[Manifest],
    together: ManifestSet,
) -> Iterator[Found]:
    words = container.words
    if any(_BRINGS.search(word) for _, word in words):
        return
    near = together.beside(manifest, "ConfigMap")
    for path, word in words:
        for called in _SCRIPT.findall(word):
            name = posixpath.basename(called)
            known = called.count("/") == 1 or called.startswith(_TOLD)
            known = known or any(is_in(called, each) for each in places)
            source = next((each for each in free if each in near and name in _keys(each)), None)
            if source is None or known:
                continue
            found = f"{source.title} has {name}, and no container mounts it: {called} is not there"
            remedy = f"mount it at {posixpath.dirname(called)}, by a volume with its name"
            finding = manifest.find(Code.FILE_NOT_MOUNTED, path[1:], found, remedy, Level.WARNING)
            yield manifest, finding


def _keys(config: Manifest) -> set[str]:
    return {*(mapping(config.body.get("data")) or {})}
