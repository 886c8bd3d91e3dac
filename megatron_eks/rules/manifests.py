"""Judges Kubernetes objects, and says on which line of which file a finding is."""

from collections.abc import Callable, Iterator, Sequence

from megatron_eks.config.errors import Code, Finding, Path
from megatron_eks.config.load import Document, Json, read_documents
from megatron_eks.rules.registry import MANIFEST_RULES
from megatron_eks.rules.values import mapping, text
from megatron_eks.rules.workloads import Manifest


def check_manifests(objects: "Sequence[Json]") -> Iterator[Finding]:
    """Judge Kubernetes objects; the elements of a List are objects of their own."""
    for value in objects:
        for _, element in elements(value):
            yield from check_manifest(element)


def check_manifest(value: Json) -> Iterator[Finding]:
    """Judge one Kubernetes object."""
    body = mapping(value)
    if not body:
        return
    manifest = Manifest(body)
    for key in ("apiVersion", "kind"):
        if text(body.get(key)) is None:
            found = f"no {key}: the API server refuses the object"
            yield manifest.find(Code.NOT_AN_OBJECT, (key,), found, f"add its {key}")
    for rule in MANIFEST_RULES:
        yield from rule(manifest)


def is_manifest(value: Json) -> bool:
    """Tell a Kubernetes object, also an incomplete one, from other mappings."""
    if not isinstance(value, dict):
        return False
    marks = [key in value for key in ("apiVersion", "kind", "metadata")]
    named = text(value.get("kind")) or text(value.get("apiVersion"))
    return marks.count(True) > 1 and named is not None


def elements(value: Json) -> list[tuple[Path, Json]]:
    """Return the objects of a document, each with its place: itself, or the elements of a List."""
    body = mapping(value) or {}
    listed = body.get("items")
    if text(body.get("kind")) != "List" or not isinstance(listed, list):
        return [((), value)]
    return [(("items", index), item) for index, item in enumerate(listed)]


def findings_in_manifests(
    documents: "Sequence[Document]", read: Callable[[str], str]
) -> list[Finding]:
    """Judge the objects of documents; read a text only to find a line in it.

    Documents that were never read (objects still in memory) stand in the order of their file.
    """
    by_file: dict[str, list[Document]] = {}
    for document in documents:
        if is_manifest(document.value):
            by_file.setdefault(document.file, []).append(document)
    return [each for file, found in by_file.items() for each in _in_file(found, file, read)]


def _in_file(
    documents: "Sequence[Document]", file: str, read: Callable[[str], str]
) -> Iterator[Finding]:
    found = [
        (index, path, finding)
        for index, document in enumerate(documents)
        for path, element in elements(document.value)
        for finding in check_manifest(element)
    ]
    if found and not all(document.places for document in documents):
        again = [each for each in read_documents(read(file), file) if is_manifest(each.value)]
        documents = again if len(again) == len(documents) else documents
    for index, path, finding in found:
        yield finding.at(file, documents[index].line(path))
