"""Judges CloudFormation templates, and says on which line of which file a finding is."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from megatron_eks.config.allowances import apply
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Document, Json, read_documents, read_json
from megatron_eks.rules.allowances import in_metadata
from megatron_eks.rules.cloudformation.branches import in_branches
from megatron_eks.rules.cloudformation.by_defaults import by_defaults
from megatron_eks.rules.embedded import embedded
from megatron_eks.rules.shapes import specific
from megatron_eks.rules.template_registry import RULES_OF_BRANCHES, TEMPLATE_RULES
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import mapping, text

Rule = Callable[[TemplateSet], Iterator[Finding]]
"""Judges one thing about templates."""
Read = Callable[[str], str]
"""Returns the text of a file that was named before."""


def check_template(template: "Mapping[str, Json]") -> Iterator[Finding]:
    """Judge one template by itself."""
    return check_templates({"": dict(template)})


def check_templates(templates: "Mapping[str, Json]") -> Iterator[Finding]:
    """Judge templates that are deployed together, by file name; imports reach their exports."""
    found = _judged(templates, (*TEMPLATE_RULES, embedded))
    yield from found
    branches = [*in_branches(templates, found, lambda given: _judged(given, RULES_OF_BRANCHES))]
    yield from branches
    known = [*found, *branches]
    yield from by_defaults(templates, known, lambda given: _judged(given, RULES_OF_BRANCHES))


def _judged(templates: "Mapping[str, Json]", rules: "Iterable[Rule]") -> list[Finding]:
    together = TemplateSet(templates)
    found = [(each.file, each) for rule in rules for each in rule(together)]
    return [finding for _, finding in specific(found)]


def is_template(value: Json) -> bool:
    """Tell a template from other mappings."""
    if not isinstance(value, dict):
        return False
    resources = mapping(value.get("Resources")) or {}
    types = [text(body.get("Type")) for body in resources.values() if isinstance(body, dict)]
    return any("::" in (name or "") for name in types) or "AWSTemplateFormatVersion" in value


def findings_for_templates(texts: "Mapping[str, str]") -> list[Finding]:
    """Judge the texts of templates that are deployed together, by file name."""
    documents = [read_json(content, file) for file, content in texts.items()]
    found = [finding for document in documents for finding in document.findings]
    return found + findings_in_templates(documents, texts.__getitem__)


def findings_in_templates(documents: "Sequence[Document]", read: Read) -> list[Finding]:
    """Judge templates that are deployed together; read a text only to find a line in it."""
    places = {document.file: document for document in documents}
    values = {file: each.value for file, each in places.items()}
    allowances = [
        allowance
        for file, value in values.items()
        for name, body in (mapping((mapping(value) or {}).get("Resources")) or {}).items()
        for allowance in in_metadata((file, name), body, file, ("Resources", name))
    ]
    placed = [
        ((each.file, str(each.path[1]) if each.path[1:] else ""), each)
        for each in check_templates(values)
    ]
    found = [finding for _, finding in apply(placed, allowances)]
    for file in {finding.file for finding in found}:
        if not places[file].places:
            again = read_documents(read(file), file)
            places[file] = next((each for each in again if is_template(each.value)), places[file])
    # A resource is the object that a person looks for, whichever property is meant.
    return [each.at(each.file, places[each.file].line(each.path[:2])) for each in found]
