"""Applies every guard, and what the files allow, to templates and to manifests."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pkgutil import iter_modules

from megatron_eks import guards
from megatron_eks.config.allowances import ANNOTATION, Allowance, apply
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Document, Json, read_documents, read_json
from megatron_eks.guards.manifests import (
    CLUSTER_MARK,
    Manifests,
    body_at,
    is_manifest,
    manifest_guard,
)
from megatron_eks.guards.templates import Templates, template_guard
from megatron_eks.guards.values import Place, Value

for _module in sorted(each.name for each in iter_modules(guards.__path__)):
    if _module != "check":  # a new module of guards needs no list
        import_module(f"{guards.__name__}.{_module}")

_Place = tuple[str, int, str]


def check_templates(
    bodies: Mapping[str, Json], read: Callable[[str], str] | None = None
) -> list[Finding]:
    """Judge templates that are deployed together, by file; a text is read only to find a line."""
    together = Templates(bodies, read)
    found = (finding for guard in template_guard for finding in guard(together))
    return _judged(found, (each.body for each in together.resources))


def check_manifests(objects: Sequence[Json]) -> list[Finding]:
    """Judge Kubernetes objects that are applied together."""
    return check_bodies([body_at(each, "") for each in objects])


def check_bodies(bodies: Sequence[Value], pools: Mapping[str, str] = {}) -> list[Finding]:
    """Judge Kubernetes objects of which the files are known, and maybe the types of pools."""
    together = Manifests(bodies, pools)
    marks = [mark for e in together.of("Namespace") if (mark := e.body.at(CLUSTER_MARK))]
    if others := [each for each in marks if each.raw != marks[0].raw]:
        found = f"what clusters {marks[0].raw} and {others[0].raw} consist of, in one check"
        remedy = "check the folder of each cluster alone"
        return [others[0].finding(Code.OWNED_BY_ANOTHER, found, remedy)]
    return _judged((found for guard in manifest_guard for found in guard(together)), bodies)


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
    value = Value(document.value, Place(document.file, ()))
    for each in value["items"] if value["kind"].text == "List" else (value,):
        if is_manifest(each.raw):
            yield body_at(each.raw, document.file, partial(document.line, each.path))


def _judged(found: Iterable[Finding], bodies: Iterable[Value]) -> list[Finding]:
    placed = [(_place(each.file, each.line, each.path), each) for each in dict.fromkeys(found)]
    return apply(placed, (allowance for body in bodies for allowance in _allowances(body)))


def _place(file: str, line: int, path: tuple[str | int, ...]) -> _Place:
    return file, line, str(path[1] if path[:1] == ("Resources",) and path[1:] else path[0])


def _allowances(body: Value) -> Iterator[Allowance[_Place]]:
    """Return what is allowed: `Metadata: {meks: {allow: {CODE: REASON}}}`, or the annotation."""
    noted = body["Metadata"]["meks"]["allow"].items()
    entries = [(f"{code} {reason.text}", reason) for code, reason in noted]
    annotation = body["metadata"]["annotations"][ANNOTATION]
    entries += [(each, annotation) for each in annotation.text.split(";") if annotation.text]
    for entry, value in entries:
        code, _, reason = entry.strip().partition(" ")
        file, line, path = body.place.file, body.place.line(), (*body.place.path, *value.path)
        yield Allowance(_place(file, line, path), code, reason.strip(), file, line, path)
