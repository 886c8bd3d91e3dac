"""Rules over JSON patches, which Kustomize applies: by themselves in a file, or in its own."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Document, Json, read_documents
from megatron_eks.rules.objects.manifest_set import Found, ManifestSet
from megatron_eks.rules.platform.kustomizations import REFUSED, is_one
from megatron_eks.rules.platform.kustomize_paths import fits, resources_of
from megatron_eks.rules.values import is_placeholder, items, mapping, shown, text
from megatron_eks.rules.workloads import Manifest

_OPERATIONS = ("add", "copy", "move", "remove", "replace", "test")
_CLOSE = 0.6
# A domain and a name, such as nvidia.com/gpu, at the end of a path.
_KEY = re.compile(r"/(?P<key>[a-z0-9-]+(?:\.[a-z0-9-]+)+/[A-Za-z0-9._-]+)$")


def is_patch(value: Json) -> bool:
    """Tell a list of operations from others."""
    listed = value if isinstance(value, list) else []
    return bool(listed) and all(
        isinstance(each, dict) and {"op", "path"} <= {*each} for each in listed
    )


def of_file(document: Document) -> Iterator[Finding]:
    """Judge a file that is a JSON patch."""
    for path, found, remedy in _problems(document.value):
        finding = Finding(Code.KUSTOMIZATION, path, found, remedy)
        yield finding.at(document.file, document.line(path))


def inside(manifest: Manifest) -> Iterator[Finding]:
    """Judge the JSON patches that stand in a Kustomization as texts.

    Kustomize, api/types/patch.go: `patch` is a strategic merge patch, or a list of RFC 6902.
    """
    listed = items(manifest.body.get("patches")) or [] if is_one(manifest) else []
    for index, value in enumerate(listed):
        written = text((mapping(value) or {}).get("patch"))
        documents = read_documents(written, "") if written else []
        if len(documents) == 1 and is_patch(documents[0].value):
            for _, found, remedy in _problems(documents[0].value):
                path: Path = ("patches", index, "patch")
                yield manifest.find(Code.KUSTOMIZATION, path, found, remedy)


def applied(together: ManifestSet) -> Iterator[Found]:
    """Refuse an operation on what its object does not have, where all of it is at hand.

    RFC 6902, section 4: the target of remove, replace and test must exist, and for add what is
    above it. Labels, annotations and what an earlier patch adds may come from elsewhere.
    """
    for each in together.objects:
        listed = items(each.body.get("patches")) or [] if is_one(each) else []
        there = resources_of(each, together) if listed else None
        # An earlier patch may have made what a later one changes.
        patch = mapping(listed[0]) or {} if there else {}
        target = mapping(patch.get("target")) or {}
        kind, name = text(target.get("kind")), text(target.get("name"))
        written = text(patch.get("patch"))
        plain = {*target} <= {"group", "kind", "name", "version"} and kind and name
        documents = read_documents(written, "") if written and plain else []
        if len(documents) != 1 or not is_patch(documents[0].value):
            continue
        for one in [one for one in there or () if fits(one, kind, name)]:
            problem = _missing(documents[0].value, dict(one.body))
            if problem is not None:
                pointer, known = problem
                found = f"{one.title} has no {shown(pointer)}: {REFUSED}"
                close = get_close_matches(pointer.rpartition("/")[2], known, 1, _CLOSE)
                remedy = f"did you mean {close[0]}?" if close else f"there: {', '.join(known)}"
                path: Path = ("patches", 0, "patch")
                yield each, each.find(Code.KUSTOMIZATION, path, found, remedy)


def _missing(value: Json, body: Json) -> tuple[str, list[str]] | None:
    """Return the first place that is not there, and the keys that are."""
    changed: list[str] = []
    for each in items(value) or []:
        operation = mapping(each) or {}
        name, pointer = text(operation.get("op")), text(operation.get("path")) or ""
        if name not in {"add", "remove", "replace", "test"} or not pointer.startswith("/"):
            return None
        above, _, last = pointer.rpartition("/")
        parts = [_unescaped(part) for part in pointer.split("/")[1:]]
        unknown = parts[0] == "metadata" or any(is_placeholder(part) for part in parts)
        if not unknown and not any(f"{pointer}/".startswith(f"{one}/") for one in changed):
            problem = _walk(body, parts[:-1] if name == "add" else parts)
            if problem is not None:
                return problem
        # What is added to a list, or taken from it, moves the others.
        changed.append(above if last == "-" or last.isdecimal() else pointer)
    return None


def _walk(body: Json, parts: list[str]) -> tuple[str, list[str]] | None:
    """Follow a path, and return where it ends too early; lists are followed by their numbers."""
    walked = ""
    for part in parts:
        walked += f"/{part.replace('~', '~0').replace('/', '~1')}"
        inside = mapping(body)
        if inside is not None and inside:
            if part not in inside:
                return walked, sorted(inside)
            body = inside[part]
            continue
        listed = items(body)
        if not listed or not part.isdecimal():
            return None
        if int(part) >= len(listed):
            return walked, [f"0 to {len(listed) - 1}"]
        body = listed[int(part)]
    return None


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _problems(value: Json) -> Iterator[tuple[Path, str, str]]:
    """Find operations that are none, and paths that lead elsewhere.

    RFC 6902, section 4; RFC 6901, section 3: a path begins with a slash, and a slash inside a key
    is written ~1.
    """
    for index, each in enumerate(items(value) or []):
        body = mapping(each) or {}
        operation, pointer = text(body.get("op")), text(body.get("path"))
        if operation is not None and operation not in _OPERATIONS and "$" not in operation:
            close = get_close_matches(operation.lower(), _OPERATIONS, 1, _CLOSE)
            remedy = f"did you mean {close[0]}?" if close else f"use {', '.join(_OPERATIONS)}"
            yield (index, "op"), f"{shown(operation)} is no operation: {REFUSED}", remedy
        if not pointer or is_placeholder(pointer):
            continue
        met = _KEY.search(pointer)
        if not pointer.startswith("/"):
            found = f"{shown(pointer)} does not begin with a slash: {REFUSED}"
            yield (index, "path"), found, f"write /{pointer.replace('.', '/')}"
        elif met:
            key = met["key"].replace("/", "~1")
            found = f"{shown(pointer)}: the key {met['key']} is taken for two"
            yield (index, "path"), found, f"write {pointer.removesuffix(met['key'])}{key}"
