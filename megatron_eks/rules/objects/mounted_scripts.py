"""Jobs as they run: with the script of a ConfigMap that a container starts, in the command's place.

What a launcher is told in a file that is mounted is then judged like what a command says.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import ManifestSet
from megatron_eks.rules.values import items, mapping, text
from megatron_eks.rules.workloads import Container, Manifest, Pod

_SHELL = re.compile(r"(\S*/)?(ba|da|k|z|a)?sh")
_STARTS = re.compile(
    r"(^|[;&\n])[ \t]*(?P<start>)(exec[ \t]+)?"
    r"(?P<by>(\S*/)?(ba|da|k|z|a)?sh[ \t]+(-\w+[ \t]+)*|source[ \t]+|\.[ \t]+)?"
    r"[\"']?(?P<path>/[\w./-]+)[\"']?(?P<rest>[^\n;&|]*)\s*$"
)
_OF_A_SHELL = re.compile(r"#!\S*/(env )?(ba|da|k|z|a)?sh\b")
_RUNS = 0o111
_AT = ("command", 2)


@dataclass(frozen=True)
class Script:
    """A file of a ConfigMap that a container starts."""

    source: Manifest
    key: str
    before: str
    """What the command's own script does first."""
    written: str


@dataclass(frozen=True)
class Run:
    """Objects as they run, each with the one that is written."""

    objects: list[Manifest]
    origins: dict[int, Manifest]
    scripts: dict[tuple[int, Path], Script]

    def placed(self, manifest: Manifest, finding: Finding) -> tuple[int, Finding]:
        """Return the identity of the object in which a finding stands, and its place there."""
        script = self.scripts.get((id(manifest), finding.path))
        if script is not None:
            path = (script.source.title, "data", script.key)
            return id(script.source), replace(finding, path=path)
        return id(self.origins.get(id(manifest), manifest)), finding


def as_run(manifests: Sequence[Manifest]) -> Run:
    """Return the objects with mounted scripts where their containers start them."""
    together = ManifestSet(manifests)
    run = Run([], {}, {})
    with_scripts = bool(together.of("ConfigMap"))
    for manifest in manifests:
        found = list(_scripts(manifest, together)) if with_scripts else []
        own, body = manifest, dict(manifest.body)
        for container, script in found:
            words: list[Json] = ["bash", "-c", script.before + script.written]
            changed = {key: each for key, each in container.body.items() if key != "args"}
            body = mapping(_with(body, container.path[1:], {**changed, "command": words})) or {}
        if found:
            own = Manifest(body, manifest.file)
            run.origins[id(own)] = manifest
            for container, script in found:
                run.scripts[id(own), (*container.path, *_AT)] = script
        run.objects.append(own)
    return run


def _with(value: Json, path: Path, part: Json) -> Json:
    """Return a value with another part at a place; the value itself stays as it is."""
    if not path:
        return part
    if isinstance(value, list):
        index = int(path[0])
        return [*value[:index], _with(value[index], path[1:], part), *value[index + 1 :]]
    body = dict(mapping(value) or {})
    key = str(path[0])
    return {**body, key: _with(body.get(key), path[1:], part)}


def _scripts(manifest: Manifest, together: ManifestSet) -> Iterator[tuple[Container, Script]]:
    for pod in manifest.pods:
        for container in pod.containers:
            start = started(container)
            script = _mounted(manifest, pod, container, start, together) if start else None
            if script is not None:
                yield container, script


def started(container: Container) -> "tuple[str, str, bool] | None":
    """Return what a container does first, the file that it starts, and whether by its name."""
    words = [word for _, word in container.words]
    if not words:
        return None
    if _SHELL.fullmatch(words[0]) is None:
        return ("", words[0], True) if words[0].startswith("/") else None
    rest = next((n for n, word in enumerate(words[1:], 1) if not word.startswith("-")), None)
    if rest is None:
        return None
    if not any(re.fullmatch(r"-[a-z]*c", word) for word in words[1:rest]):
        return "", words[rest], False
    match = _STARTS.search(words[rest].rstrip())
    if match is None:
        return None
    return words[rest][: match.start("start")], match["path"], match["by"] is None


def _mounted(
    manifest: Manifest,
    pod: Pod,
    container: Container,
    start: "tuple[str, str, bool]",
    together: ManifestSet,
) -> Script | None:
    """Return the file of a ConfigMap that is mounted at a path."""
    before, called, by_name = start
    volumes = {
        text(body.get("name")): mapping(body.get("configMap")) or {}
        for each in items(pod.spec.get("volumes")) or []
        if (body := mapping(each))
    }
    for each in items(container.body.get("volumeMounts")) or []:
        mount = mapping(each) or {}
        source, place = volumes.get(text(mount.get("name"))), text(mount.get("mountPath"))
        if not source or place is None:
            continue
        file = text(mount.get("subPath")) if posixpath.normpath(place) == called else None
        if posixpath.dirname(called) == posixpath.normpath(place) and "subPath" not in mount:
            file = posixpath.basename(called)
        item = next((i for i in _items(source) if i.get("path") == file), None)
        key = file if item is None else text(item.get("key"))
        target = together.named(manifest, "ConfigMap", text(source.get("name")) or "")
        if key is None or target is None or (_items(source) and item is None):
            continue
        written = text((mapping(target.body.get("data")) or {}).get(key))
        mode = (item or {}).get("mode", source.get("defaultMode"))
        # What nobody may run is found as such, and then it does nothing.
        runs = not by_name or (isinstance(mode, int) and mode & _RUNS)
        if written and runs and (key.endswith(".sh") or _OF_A_SHELL.match(written) or not by_name):
            return Script(target, key, before, written)
    return None


def _items(source: "dict[str, Json]") -> "list[dict[str, Json]]":
    return [mapping(each) or {} for each in items(source.get("items")) or []]
