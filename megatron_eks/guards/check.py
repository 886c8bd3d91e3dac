"""Applies every guard, and what the files allow, to templates and to manifests."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pkgutil import iter_modules

from megatron_eks import guards
from megatron_eks.config.allowances import ANNOTATION, Allowance, apply
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Document, Json, read_documents, read_json
from megatron_eks.guards import manifests, templates
from megatron_eks.guards.manifests import Manifests, body_at, is_manifest
from megatron_eks.guards.templates import Templates
from megatron_eks.guards.values import Value

for _module in sorted(each.name for each in iter_modules(guards.__path__)):
    if _module != "check":  # a new module of guards needs no list
        import_module(f"{guards.__name__}.{_module}")

_Place = tuple[str, int, str]


def check_templates(
    bodies: Mapping[str, Json], read: Callable[[str], str] | None = None
) -> list[Finding]:
    """Judge templates that are deployed together, by file; a text is read only to find a line."""
    together = Templates(bodies, read)
    allowed = (a for each in together.resources for a in _in_metadata(each.name, each.body))
    return _judged((guard(together) for guard in templates.GUARDS), allowed)


def check_manifests(objects: Sequence[Json]) -> list[Finding]:
    """Judge Kubernetes objects that are applied together."""
    bodies = [body_at(element, "") for each in objects for _, element in elements(each)]
    return check_bodies(bodies)


def check_bodies(bodies: Sequence[Value]) -> list[Finding]:
    """Judge Kubernetes objects of which the files are known."""
    together = Manifests(bodies)
    allowed = (a for each in bodies for a in _in_annotation(each))
    return _judged((guard(together) for guard in manifests.GUARDS), allowed)


def findings_for_templates(texts: Mapping[str, str]) -> list[Finding]:
    """Judge the texts of templates that are deployed together, by file name."""
    documents = [read_json(content, file) for file, content in texts.items()]
    broken = [finding for document in documents for finding in document.findings]
    bodies = {document.file: document.value for document in documents}
    return broken + check_templates(bodies, texts.__getitem__)


def findings_for_manifests(texts: Mapping[str, str]) -> list[Finding]:
    """Judge the objects in texts, by file name."""
    documents = [each for file, content in texts.items() for each in read_documents(content, file)]
    broken = [finding for document in documents for finding in document.findings]
    return broken + check_bodies([body for each in documents for body in bodies_in(each)])


def bodies_in(document: Document) -> Iterator[Value]:
    """Return the objects of a document, each with the line where it starts."""
    for path, element in elements(document.value):
        if is_manifest(element):
            yield body_at(element, document.file, partial(document.line, path))


def elements(value: Json) -> list[tuple[tuple[str | int, ...], Json]]:
    """Return the objects of a document, each with its place: itself, or the elements of a List."""
    if isinstance(value, dict) and value.get("kind") == "List":
        listed = value.get("items")
        if isinstance(listed, list):
            return [(("items", index), item) for index, item in enumerate(listed)]
    return [((), value)]


def _judged(
    found: Iterable[Iterator[Finding]], allowances: Iterable[Allowance[_Place]]
) -> list[Finding]:
    unique = dict.fromkeys(finding for guard in found for finding in guard)
    placed = [(_place(each.file, each.line, each.path), each) for each in unique]
    return [finding for _, finding in apply(placed, allowances)]


def _place(file: str, line: int, path: tuple[str | int, ...]) -> _Place:
    """Return which resource or object a finding is about."""
    return file, line, str(path[1] if path[:1] == ("Resources",) and path[1:] else path[0])


def _in_metadata(name: str, body: Value) -> Iterator[Allowance[_Place]]:
    """Return what a resource of a template allows: `Metadata: {meks: {allow: {CODE: REASON}}}`."""
    for code, reason in body["Metadata"]["meks"]["allow"].items():
        path = ("Resources", name, *reason.path)
        line = body.place.line()
        place = (body.place.file, line, name)
        yield Allowance(place, code, reason.text, body.place.file, line, path)


def _in_annotation(body: Value) -> Iterator[Allowance[_Place]]:
    """Return what a Kubernetes object allows: the annotation, entries separated by semicolons."""
    written = body["metadata"]["annotations"][ANNOTATION]
    for entry in written.text.split(";") if written.text else ():
        code, _, reason = entry.strip().partition(" ")
        path = (*body.place.path, *written.path)
        line = body.place.line()
        place = _place(body.place.file, line, path)
        yield Allowance(place, code, reason.strip(), body.place.file, line, path)
