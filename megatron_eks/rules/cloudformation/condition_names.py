"""Rule over what Conditions, Rules and outputs of a template name."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import TemplateSet
from megatron_eks.rules.values import mapping, shown, text

_CLOSE = 0.7


def names(templates: TemplateSet) -> Iterator[Finding]:
    """Require of Conditions and Rules that their parameters and conditions exist.

    CloudFormation User Guide, "Condition functions", "Rules": nothing is made when they are read,
    so a resource cannot be named: "Unresolved dependencies ... in the Conditions block".
    """
    for file, template in templates.files():
        parameters = templates.part(file, "Parameters")
        conditions = templates.part(file, "Conditions")
        known = templates.names(file)
        if parameters is None or conditions is None or known is None:
            continue
        made = mapping(template.get("Resources")) or {}
        for section in ("Conditions", "Rules"):
            for path, kind, name in _named(template.get(section), (section,)):
                there = conditions if kind == "condition" else parameters
                if name in there or (kind == "parameter" and name.startswith("AWS::")):
                    continue
                found = f"no {kind} {shown(name)} in this template"
                if kind == "parameter" and name in made:
                    found = f"{name} is a resource, and nothing is made when {section} are read"
                yield _found(path, found, name, there, file)
        for output, body in (mapping(template.get("Outputs")) or {}).items():
            name = text((mapping(body) or {}).get("Condition")) or ""
            if name and name not in conditions:
                path = ("Outputs", output, "Condition")
                found = f"no condition {shown(name)} in this template"
                yield _found(path, found, name, conditions, file)


def _found(path: Path, found: str, name: str, known: "dict[str, Json]", file: str) -> Finding:
    close = get_close_matches(name, [*known], 1, _CLOSE)
    remedy = f"did you mean {close[0]}?" if close else "correct the name, or add it"
    refused = f"{found}: CloudFormation refuses the template"
    return Finding(Code.REFERENCE, path, refused, remedy, file=file)


def _named(value: Json, path: Path) -> Iterator[tuple[Path, str, str]]:
    """Return the parameters and conditions that a value names, each with its place."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _named(each, (*path, index))
    if not isinstance(value, dict):
        return
    for key, each in value.items():
        # A condition, or a rule, may itself have any name.
        named = len(value) == 1 and len(path) > 1 and isinstance(each, str)
        if named and key in {"Ref", "Condition"}:
            yield path, "parameter" if key == "Ref" else "condition", str(each)
        elif not key.startswith("Fn::ForEach"):
            yield from _named(each, (*path, key))
