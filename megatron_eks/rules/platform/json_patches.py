"""Rules over JSON patches, which Kustomize applies: by themselves in a file, or in its own."""

import re
from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Document, Json, read_documents
from megatron_eks.rules.platform.kustomizations import REFUSED, is_one
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
