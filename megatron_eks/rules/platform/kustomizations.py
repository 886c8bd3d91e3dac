"""Rule over a Kustomization by itself: the fields that Kustomize reads, and their values."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

NAMES = frozenset({"kustomization", "kustomization.yaml", "kustomization.yml"})
"""What its file is called, in lower case."""
_GROUP = "kustomize.config.k8s.io"
_VERSIONS = {"Component": f"{_GROUP}/v1alpha1", "Kustomization": f"{_GROUP}/v1beta1"}
# Kustomize, api/types: Unmarshal there refuses unknown fields, at every depth.
_TEXTS = ("namePrefix", "nameSuffix", "namespace")
TEXTS_BY_NAME = ("commonAnnotations", "commonLabels", "openapi")
LISTS_OF_TEXTS = (
    *("bases", "buildMetadata", "components", "configurations", "crds", "generators"),
    *("patchesStrategicMerge", "resources", "transformers", "validators"),
)
_GENERATOR = frozenset(
    {
        *("ageIdentities", "behavior", "env", "envs", "files", "immutable", "literals", "name"),
        *("namespace", "options"),
    }
)
_PATCH = frozenset({"options", "patch", "path", "target"})
_ELEMENTS = {
    "configMapGenerator": _GENERATOR,
    "images": frozenset({"digest", "name", "newName", "newTag", "tagSuffix"}),
    "imageTags": frozenset({"digest", "name", "newName", "newTag", "tagSuffix"}),
    "labels": frozenset(
        {
            *("fields", "includeSelectors", "includeTemplates", "includeVolumeClaimTemplates"),
            "pairs",
        }
    ),
    "patches": _PATCH,
    "patchesJson6902": _PATCH,
    "replacements": frozenset({"path", "source", "sourceValue", "targets"}),
    "replicas": frozenset({"count", "name"}),
    "secretGenerator": _GENERATOR | {"type"},
}
_TARGET = frozenset(
    {"annotationSelector", "group", "kind", "labelSelector", "name", "namespace", "skip", "version"}
)
_FIELDS = frozenset(
    {
        *("apiVersion", "kind", "metadata", "generatorOptions", "helmChartInflationGenerator"),
        *("helmCharts", "helmGlobals", "inventory", "sortOptions", "vars"),
        *(*_TEXTS, *TEXTS_BY_NAME, *LISTS_OF_TEXTS, *_ELEMENTS),
    }
)
# Objects of one name may be added only once.
_ONCE = frozenset({"bases", "resources"})
_NEARLY = 0.6
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
REFUSED = "kustomize refuses the file"


def is_one(manifest: Manifest) -> bool:
    """Tell what Kustomize reads from others of that name: Flux has a Kustomization too."""
    named = posixpath.basename(manifest.file).lower() in NAMES
    return named or (manifest.kind in _VERSIONS and manifest.group == _GROUP)


def kustomizations(manifest: Manifest) -> Iterator[Finding]:
    """Refuse what Kustomize does not read.

    Kustomize, api/types/kustomization.go: EnforceFields, and Unmarshal with unknown fields
    disallowed; its builtin PatchTransformer takes either `path` or `patch`.
    """
    if is_one(manifest):
        for path, found, remedy in (*_kinds(manifest), *_top(manifest), *_inside(manifest)):
            yield manifest.find(Code.KUSTOMIZATION, path, found, remedy)


_Wrong = Iterator[tuple[Path, str, str]]


def _kinds(manifest: Manifest) -> _Wrong:
    wanted = _VERSIONS.get(manifest.kind)
    if wanted is None:
        found = f"{shown(manifest.body.get('kind'))} is no kind of Kustomize: {REFUSED}"
        yield ("kind",), found, "write Kustomization, or Component"
    elif manifest.body.get("apiVersion") != wanted:
        found = f"{shown(manifest.body.get('apiVersion'))} is no version of it: {REFUSED}"
        yield ("apiVersion",), found, f"write {wanted}"


def _top(manifest: Manifest) -> _Wrong:
    body = manifest.body
    yield from _unknown((), body, _FIELDS)
    for key in _TEXTS:
        if body.get(key) is not None and not isinstance(body[key], str):
            yield (key,), f"{shown(body[key])} is no text: {REFUSED}", "write it in quotes"
    space = text(body.get("namespace"))
    if space and not is_placeholder(space) and not _LABEL.fullmatch(space):
        remedy = "use lower-case letters, digits and '-', at most 63"
        yield ("namespace",), f"{shown(space)} is no name of a namespace", remedy
    for key in TEXTS_BY_NAME:
        yield from _texts((key,), body.get(key))
    for key in LISTS_OF_TEXTS:
        value = body.get(key)
        if value is not None and not isinstance(value, list):
            yield (key,), f"{shown(value)} is no list: {REFUSED}", "write a list of paths"
        for index, each in enumerate(items(value) or []):
            before = [_normal(one) for one in (items(value) or [])[:index] if isinstance(one, str)]
            if key in _ONCE and isinstance(each, str) and _normal(each) in before:
                found = f"{shown(each)} is listed twice: {REFUSED}"
                yield (key, index), found, "remove it"
            if not isinstance(each, str):
                remedy = "use `patches` with path and target" if "patch" in key else "write a path"
                yield (key, index), f"{shown(each)} is no text: {REFUSED}", remedy


def _normal(name: str) -> str:
    """Return a path as every way to write it means it; an address as it is."""
    return name if "://" in name or "?" in name else posixpath.normpath(name)


def _texts(path: Path, value: Json) -> _Wrong:
    for name, each in value.items() if isinstance(value, dict) else ():
        if each is not None and not isinstance(each, str):
            yield (*path, name), f"{shown(each)} is no text: {REFUSED}", "write it in quotes"


def _inside(manifest: Manifest) -> _Wrong:
    for key, fields in _ELEMENTS.items():
        value = manifest.body.get(key)
        if value is not None and not isinstance(value, list):
            yield (key,), f"{shown(value)} is no list: {REFUSED}", "write a list"
        for index, each in enumerate(items(value) or []):
            body = each if isinstance(each, dict) else None
            if body is None:
                remedy = "write a mapping, such as `- path: FILE`" if key == "patches" else ""
                found = f"{shown(each)} is no mapping: {REFUSED}"
                yield (key, index), found, remedy or "write a mapping"
                continue
            yield from _unknown((key, index), body, fields)
            if key in {"patches", "patchesJson6902"}:
                yield from _patch((key, index), body)
            elif key in {"images", "imageTags"}:
                yield from _image(manifest, (key, index), body)
            elif key == "labels":
                yield from _texts((key, index, "pairs"), body.get("pairs"))
            elif key == "replicas":
                yield from _count((key, index), body)
            elif key in {"configMapGenerator", "secretGenerator"}:
                yield from _literals((key, index), body)


def _unknown(path: Path, body: Mapping[str, Json], fields: frozenset[str]) -> _Wrong:
    # Go's decoder of JSON does not tell capitals from small letters.
    known = {each.lower() for each in fields}
    for name in body:
        if name.lower() not in known:
            close = get_close_matches(name, fields, 1, _NEARLY)
            remedy = f"did you mean {close[0]}?" if close else f"there: {', '.join(sorted(fields))}"
            yield (*path, name), f"no field of Kustomize: {REFUSED}", remedy


def _patch(path: Path, body: dict[str, Json]) -> _Wrong:
    given = [bool((text(body.get(key)) or "").strip()) for key in ("path", "patch")]
    target = mapping(body.get("target")) or {}
    yield from _unknown((*path, "target"), target, _TARGET)
    if path[0] != "patches" and not target:
        found = f"a JSON patch without target: {REFUSED}"
        yield (*path, "target"), found, "add target with kind and name"
    if all(given):
        yield path, f"both path and patch: {REFUSED}", "keep one of them"
    elif not any(given) and not isinstance(body.get("patch"), list | dict):
        yield path, f"neither path nor patch: {REFUSED}", "name its file: path: FILE"
    for key in ("path", "patch"):
        if body.get(key) is not None and not isinstance(body[key], str):
            remedy = "write the patch as a text: `patch: |-`" if key == "patch" else "write a path"
            yield (*path, key), f"{shown(body[key])} is no text: {REFUSED}", remedy


def _image(manifest: Manifest, path: Path, body: dict[str, Json]) -> _Wrong:
    for key in ("digest", "name", "newName", "newTag"):
        if body.get(key) is not None and not isinstance(body[key], str):
            # 1.10 is 1.1 as a number, and another tag.
            said = manifest.plain.get((*path, key), shown(body[key]))
            found = f"{said} is no text: {REFUSED}"
            yield (*path, key), found, f'write it in quotes: {key}: "{said}"'
    name = text(body.get("name")) or ""
    if ("@" in name or ":" in name.rpartition("/")[2]) and not is_placeholder(name):
        found = f"{shown(name)} matches no image: names stand here without their tag"
        yield (*path, "name"), found, "remove the tag or digest"


def _literals(path: Path, body: dict[str, Json]) -> _Wrong:
    for place, each in enumerate(items(body.get("literals")) or []):
        if isinstance(each, dict) and len(each) == 1:
            name, value = next(iter(each.items()))
            found = f"a mapping, where kustomize takes NAME=VALUE: {REFUSED}"
            plain = isinstance(value, str | int | float) and not isinstance(value, bool)
            remedy = f"write {name}={value}" if plain else f"write {name}=VALUE"
            yield (*path, "literals", place), found, remedy
        elif isinstance(each, str) and "=" not in each and not is_placeholder(each):
            found = f"{shown(each)} has no =: {REFUSED}"
            yield (*path, "literals", place), found, "write NAME=VALUE"


def _count(path: Path, body: dict[str, Json]) -> _Wrong:
    count = body.get("count")
    if count is None or (isinstance(count, int) and not isinstance(count, bool)):
        return
    if not is_placeholder(text(count) or ""):
        yield (*path, "count"), f"{shown(count)} is no number: {REFUSED}", "write a number"
