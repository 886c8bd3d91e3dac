"""Rules over what a Kustomization names: files that are not there, and patches of nothing."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet, references
from megatron_eks.rules.platform.kustomizations import (
    LISTS_OF_TEXTS,
    REFUSED,
    TEXTS_BY_NAME,
    is_one,
)
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_NO_PATH = re.compile(r"\s|://|//|[?@:]|^/|^[^./][^/]*\.[^/]*/")
_GENERATORS = {"configMapGenerator": "ConfigMap", "secretGenerator": "Secret"}
_CLOSE = 0.8
_IS_FILE = re.compile(r"\.(ya?ml|json)$")


def local_paths(body: Mapping[str, Json]) -> Iterator[tuple[Path, str]]:
    """Return the paths that a Kustomization names, each with its place; no addresses.

    Secrets are mostly not kept beside it: they come there just before it is built.
    """
    for key in LISTS_OF_TEXTS:
        for index, value in enumerate(items(body.get(key)) or [] if key != "buildMetadata" else []):
            yield from _local((key, index), value)
    for key in ("patches", "patchesJson6902", "replacements"):
        for index, value in enumerate(items(body.get(key)) or []):
            # A bare name in the place of a mapping is told; it means this file all the same.
            named = text(value) or (mapping(value) or {}).get("path")
            yield from _local((key, index, "path"), named)
    for index, value in enumerate(items(body.get("configMapGenerator")) or []):
        generator = mapping(value) or {}
        for key in ("files", "envs"):
            for place, each in enumerate(items(generator.get(key)) or []):
                named = (text(each) or "").rpartition("=")[2]
                yield from _local(("configMapGenerator", index, key, place), named)


def _local(path: Path, value: Json) -> Iterator[tuple[Path, str]]:
    name = text(value)
    # What stands in patchesStrategicMerge and the like may be the text of an object itself.
    if name and not _NO_PATH.search(name) and not is_placeholder(name):
        yield path, name


def absent(together: ManifestSet) -> Iterator[Found]:
    """Refuse a path that is not there, and warn of a file that lies outside the folder.

    Kustomize, api/internal/target and api/ifc/loader: what is named must be readable, and
    LoadRestrictionsRootOnly refuses a file "not in or below" the folder; a folder may be.
    """
    for each in together.objects:
        gone = together.absent.get(each.file, frozenset())
        for path, name in local_paths(each.body) if is_one(each) else ():
            generated = path[0] == "configMapGenerator"
            is_file = generated or "path" in path or _IS_FILE.search(name)
            if name in gone:
                found = f"{shown(name)} is not there, or a folder without a kustomization.yaml"
                if is_file:
                    found = f"there is no file {shown(name)} beside it"
                level = Level.WARNING if generated else Level.ERROR
                remedy = "write its path as seen from this file's folder"
                yield each, each.find(Code.KUSTOMIZATION, path, found, remedy, level)
            elif is_file and posixpath.normpath(name).startswith("../"):
                found = f"{shown(name)} lies outside this folder, and kustomize reads no such file"
                remedy = "move it here, or give its folder a kustomization.yaml and name the folder"
                finding = each.find(Code.KUSTOMIZATION, path, found, remedy, Level.WARNING)
                yield each, finding


def patches(manifests: Sequence[Manifest]) -> set[int]:
    """Return the identities of objects that are only laid over others."""
    named = set()
    for each in manifests:
        for path, name in local_paths(each.body) if is_one(each) else ():
            if str(path[0]).startswith("patches"):
                named.add(_file(each, name))
    return {id(each) for each in manifests if named and posixpath.normpath(each.file) in named}


def unmet(together: ManifestSet) -> Iterator[Found]:
    """Require an object for each patch, where all that it may change is at hand.

    Kustomize, plugin/builtin/patchtransformer: for a patch without target that finds none it says
    "no matches for Id"; one with a target then changes nothing.
    """
    for each in together.objects:
        there = resources_of(each, together) if is_one(each) else None
        for index, value in enumerate(items(each.body.get("patches")) or [] if there else []):
            patch = mapping(value) or {}
            file, target = text(patch.get("path")), mapping(patch.get("target")) or {}
            if target:
                wanted = [(text(target.get("kind")), text(target.get("name")))]
                if {*target} - {"kind", "name"} or any(is_placeholder(str(w)) for w in wanted[0]):
                    continue
            else:
                own = [one for one in together.laid_over if file and _is_file(one, each, file)]
                wanted = [(re.escape(one.kind), re.escape(one.name or "")) for one in own]
            generated = {kind for key, kind in _GENERATORS.items() if each.body.get(key)}
            for kind, name in wanted:
                if generated and (kind is None or kind in generated):
                    continue
                if not any(fits(one, kind, name) for one in there or ()):
                    said = "/".join((part or "*").replace("\\", "") for part in (kind, name))
                    level = Level.WARNING if target else Level.ERROR
                    found = f"no {said} among its resources: nothing is changed"
                    if not target:
                        found = f"no {said} among its resources: {REFUSED}"
                    titles = ", ".join(sorted(one.title for one in there or ()))
                    path = ("patches", index, "target" if target else "path")
                    remedy = f"there: {titles}"
                    yield each, each.find(Code.KUSTOMIZATION, path, found, remedy, level)


def generated(together: ManifestSet) -> Iterator[Found]:
    """Warn of nearly the name of a ConfigMap or Secret that the Kustomization makes.

    Kustomize, configMapGenerator: it adds a hash to the name, and writes it into what refers to it
    by its plain name; another name stays as it is, and the pod waits for it.
    """
    for each in together.objects:
        made = {
            kind: [
                name
                for value in items(each.body.get(key)) or []
                if (name := text((mapping(value) or {}).get("name")))
            ]
            for key, kind in _GENERATORS.items()
        }
        there = (resources_of(each, together) or []) if is_one(each) and any(made.values()) else []
        for one in there:
            for reference in references(one):
                names = made.get(reference.kind, [])
                close = get_close_matches(reference.name, names, 1, _CLOSE)
                known = together.named(one, reference.kind, reference.name)
                if close and reference.name not in names and known is None:
                    found = (
                        f"no {reference.kind} {shown(reference.name)}, and the Kustomization makes "
                    )
                    found += close[0]
                    finding = one.find(
                        Code.MISSING_OBJECT,
                        reference.path,
                        found,
                        f"write {close[0]}",
                        Level.WARNING,
                    )
                    yield one, finding


def images(together: ManifestSet) -> Iterator[Found]:
    """Warn of an image that no container of the resources has, so that none is replaced.

    Kustomize, images: `name` is that of the containers' image, without its tag.
    """
    for each in together.objects:
        listed = items(each.body.get("images")) or []
        there = resources_of(each, together) if is_one(each) and listed else None
        used = {
            re.split(r"[@]|:(?=[^/]*$)", image)[0]
            for one in there or ()
            for pod in one.pods
            for container in pod.containers
            if (image := text(container.body.get("image")))
        }
        # Of custom resources only a part is known to hold pods.
        for index, value in enumerate(listed if used else ()):
            name = text((mapping(value) or {}).get("name"))
            if name is None or name in used or is_placeholder(name) or "*" in name:
                continue
            found = f"no container has the image {shown(name)}: nothing is replaced"
            path: Path = ("images", index, "name")
            remedy = f"there: {', '.join(sorted(used))}"
            yield each, each.find(Code.KUSTOMIZATION, path, found, remedy, Level.WARNING)


def resources_of(manifest: Manifest, together: ManifestSet) -> list[Manifest] | None:
    """Return the objects of a Kustomization, or None where not all of them are at hand."""
    known = {"apiVersion", "kind", "metadata", "resources", "patches", "images", "replicas"}
    known |= {"labels", "namePrefix", "nameSuffix", "namespace", *TEXTS_BY_NAME}
    known |= {*_GENERATORS, "generatorOptions"}
    listed = items(manifest.body.get("resources")) or []
    paths = [name for path, name in local_paths(manifest.body) if path[0] == "resources"]
    if not listed or {*manifest.body} - known or len(paths) != len(listed):
        return None
    files = [[one for one in together.objects if _is_file(one, manifest, name)] for name in paths]
    return [one for every in files for one in every] if all(files) else None


def _file(manifest: Manifest, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(manifest.file), name))


def _is_file(one: Manifest, manifest: Manifest, name: str) -> bool:
    return posixpath.normpath(one.file) == _file(manifest, name)


def fits(one: Manifest, kind: str | None, name: str | None) -> bool:
    """Tell whether an object has a kind and a name, which Kustomize takes for expressions."""
    try:
        return all(
            pattern is None or re.fullmatch(pattern, value) is not None
            for pattern, value in ((kind, one.kind), (name, one.name or ""))
        )
    except re.error:
        return True  # Go's expressions are not Python's.
