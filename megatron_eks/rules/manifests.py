"""Judges Kubernetes objects, and says on which line of which file a finding is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from megatron_eks.config.allowances import apply
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Document, Json, read_documents
from megatron_eks.rules.allowances import in_annotation
from megatron_eks.rules.objects import fields
from megatron_eks.rules.objects.manifest_set import ManifestSet
from megatron_eks.rules.objects.mounted_scripts import as_run
from megatron_eks.rules.objects.node_pools import NodePool
from megatron_eks.rules.platform.kustomize_paths import patches
from megatron_eks.rules.registry import MANIFEST_RULES, SET_RULES
from megatron_eks.rules.shapes import specific
from megatron_eks.rules.values import mapping, text
from megatron_eks.rules.workloads import Manifest

_WORKER = "Worker"
_NOTHING: Mapping[str, frozenset[str]] = MappingProxyType({})
_NO_ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def check_manifests(objects: "Sequence[Json]") -> Iterator[Finding]:
    """Judge Kubernetes objects by themselves, then together; the elements of a List are objects."""
    bodies = [mapping(element) for value in objects for _, element in elements(value)]
    manifests = [Manifest(body) for body in bodies if body]
    yield from (finding for _, finding in _every(manifests))


def _every(
    manifests: "Sequence[Manifest]",
    node_pools: "Sequence[NodePool]" = (),
    absent: Mapping[str, frozenset[str]] = _NOTHING,
    subjects: Mapping[str, tuple[str, ...]] = _NO_ROLES,
) -> "list[tuple[int, Finding]]":
    """Return what is found in each object, which is told by its identity."""
    over = patches(manifests)
    parts = [each for each in manifests if id(each) in over]
    run = as_run([each for each in manifests if id(each) not in over])
    alone = [run.placed(each, finding) for each in run.objects for finding in _by_itself(each)]
    together = ManifestSet(run.objects, node_pools, parts, absent, subjects)
    among = [run.placed(*each) for rule in SET_RULES for each in rule(together)]
    own = [(id(each), finding) for each in parts for finding in fields.fields_of_part(each)]
    # A script that stands in a ConfigMap is judged there, and in each job that starts it.
    return _once(specific(list(dict.fromkeys([*alone, *among, *own]))))


def _once(found: "list[tuple[int, Finding]]") -> "list[tuple[int, Finding]]":
    """Tell what is wrong with a job's master and its workers in the same words as one finding."""

    def mark(place: int, finding: Finding) -> tuple[object, ...]:
        path = tuple("Master" if part == _WORKER else part for part in finding.path)
        return place, finding.code, finding.level, path, finding.found, finding.remedy

    of_master = {mark(*each) for each in found if _WORKER not in each[1].path}
    of_worker = {mark(*each) for each in found if _WORKER in each[1].path}
    return [
        (place, replace(each, remedy=f"{each.remedy}; in the Worker too"))
        if _WORKER not in each.path and mark(place, each) in of_worker
        else (place, each)
        for place, each in found
        if not (_WORKER in each.path and mark(place, each) in of_master)
    ]


def _by_itself(manifest: Manifest) -> Iterator[Finding]:
    for key in ("apiVersion", "kind"):
        if text(manifest.body.get(key)) is None:
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


def findings_for_manifests(texts: Mapping[str, str]) -> list[Finding]:
    """Judge the objects in texts, by file name."""
    documents = [each for file, content in texts.items() for each in read_documents(content, file)]
    found = [finding for document in documents for finding in document.findings]
    return found + findings_in_manifests(documents, texts.__getitem__)


def findings_in_manifests(
    documents: "Sequence[Document]",
    read: Callable[[str], str],
    node_pools: "Sequence[NodePool]" = (),
    absent: Mapping[str, frozenset[str]] = _NOTHING,
    subjects: Mapping[str, tuple[str, ...]] = _NO_ROLES,
) -> list[Finding]:
    """Judge the objects of documents; read a text only to find a line in it.

    They are held against the node groups and roles too, where templates were given with them.
    Documents that were never read (objects still in memory) stand in the order of their file. What
    is absent is told by the file of a Kustomization: the paths in it that lead to nothing.
    """
    placed = [
        _Placed(Manifest(body, document.file, _plain(document, path, body)), document, path)
        for document in documents
        if is_manifest(document.value)
        for path, element in elements(document.value)
        if (body := mapping(element))
    ]
    by_id = {id(each.manifest): each for each in placed}
    manifests = [each.manifest for each in placed]
    found = _every(manifests, node_pools, absent, subjects)
    allowances = [
        allowance
        for number, each in by_id.items()
        for allowance in in_annotation(
            number, dict(each.manifest.body), each.document.file, each.manifest.title
        )
    ]
    lines = _Lines(documents, read)
    judged = [(by_id[number], finding) for number, finding in apply(found, allowances)]
    return [finding.at(each.document.file, lines.of(each)) for each, finding in judged]


def _plain(document: Document, path: Path, body: "dict[str, Json]") -> dict[Path, str]:
    """Return how the numbers of a Kustomization are written, which may say more than they do."""
    if not (text(body.get("apiVersion")) or "").startswith("kustomize.config.k8s.io/"):
        return {}
    return {
        place[len(path) :]: each.raw
        for place, each in document.places.items()
        if place[: len(path)] == path and each.raw
    }


@dataclass(frozen=True)
class _Placed:
    """An object, and where it stands."""

    manifest: Manifest
    document: Document
    path: Path


class _Lines:
    """Finds lines; a file whose documents have no places is read once more for it."""

    def __init__(self, documents: "Sequence[Document]", read: Callable[[str], str]) -> None:
        self._read = read
        self._documents: dict[str, list[Document]] = {}
        for document in documents:
            if is_manifest(document.value):
                self._documents.setdefault(document.file, []).append(document)
        self._again: dict[int, Document] = {}

    def of(self, placed: _Placed) -> int:
        """Return the line where an object starts."""
        document = placed.document
        if not document.places and id(document) not in self._again:
            file, first = document.file, self._documents[document.file]
            read = read_documents(self._read(file), file)
            again = [each for each in read if is_manifest(each.value)]
            pairs = zip(first, again if len(again) == len(first) else first, strict=True)
            self._again |= {id(one): other for one, other in pairs}
        return self._again.get(id(document), document).line(placed.path)
