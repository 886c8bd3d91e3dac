"""Rule over CloudFormation's own functions: their names, and what they take."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.shapes import CLOUDFORMATION, table
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import shown, text

_CLOSE = 0.7
_FEWEST_OF_FIND = 3
# CloudFormation User Guide, "Intrinsic function reference": the name, and how many arguments where
# it takes a list.
_FUNCTIONS: dict[str, tuple[int, ...]] = {
    "Fn::And": (),
    "Fn::Base64": (),
    "Fn::Cidr": (2, 3),
    "Fn::Equals": (2,),
    "Fn::FindInMap": (3, 4),
    "Fn::GetAtt": (2,),
    "Fn::GetAZs": (),
    "Fn::GetStackOutput": (),
    "Fn::If": (3,),
    "Fn::ImportValue": (),
    "Fn::Join": (2,),
    "Fn::Length": (),
    "Fn::Not": (1,),
    "Fn::Or": (),
    "Fn::Select": (2,),
    "Fn::Split": (2,),
    "Fn::Sub": (2,),
    "Fn::ToJsonString": (),
    "Fn::Transform": (),
    "Ref": (),
}
_OF_A_TEXT = frozenset({"Fn::Base64", "Fn::ImportValue", "Ref"})


def functions(templates: TemplateSet) -> Iterator[Finding]:
    """Require functions that CloudFormation has, with what each of them takes.

    CloudFormation User Guide, "Intrinsic function reference", and the attributes of each type for
    Fn::GetAtt; the template is refused otherwise.
    """
    for resource in templates.everything():
        for path, name, value in _calls(dict(resource.properties), ()):
            problem = _problem(name, value, resource.file, templates)
            if problem is not None:
                yield resource.find(Code.FUNCTION, path, *problem)
        yield from _condition(resource, templates)
    for file, outputs in templates.outputs():
        for path, name, value in _calls(outputs, ("Outputs",)):
            problem = _problem(name, value, file, templates)
            if problem is not None:
                yield Finding(Code.FUNCTION, path, *problem, file=file)


def _condition(resource: Resource, templates: TemplateSet) -> Iterator[Finding]:
    name, known = resource.body.get("Condition"), templates.part(resource.file, "Conditions")
    if isinstance(name, str) and known is not None and name not in known:
        yield resource.find(Code.FUNCTION, ("Condition",), *_unknown("condition", name, known))


def _calls(value: Json, path: Path) -> Iterator[tuple[Path, str, Json]]:
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        yield from _calls(each, (*path, key))
        named = isinstance(key, str) and key.startswith("Fn::") and ":" not in key[4:]
        if named or (key == "Ref" and isinstance(value, dict) and len(value) == 1):
            yield path, str(key), each


Problem = tuple[str, str, Level]
"""What was found, the remedy, and how bad it is."""


def _problem(name: str, value: Json, file: str, templates: TemplateSet) -> Problem | None:
    if name not in _FUNCTIONS:
        # CloudFormation gains functions; what is nearly one of these is misspelt.
        close = get_close_matches(name, _FUNCTIONS, 1, _CLOSE)
        return _unknown("function", name, _FUNCTIONS) if close else None
    return _arguments(name, value) or _names(name, value, file, templates)


def _arguments(name: str, value: Json) -> Problem | None:
    counts = _FUNCTIONS[name]
    if name in _OF_A_TEXT and not isinstance(value, str | dict):
        return f"{name} of {shown(value)}", "give it one text", Level.ERROR
    if (
        name == "Fn::GetAtt"
        and isinstance(value, list)
        and any(not isinstance(each, str | dict) for each in value)
    ):
        found = "Fn::GetAtt of something else than texts"
        return found, "write [RESOURCE, ATTRIBUTE]", Level.ERROR
    if counts and isinstance(value, list) and len(value) not in counts:
        remedy = f"give it {' or '.join(map(str, counts))}"
        return f"{name} with {len(value)} arguments", remedy, Level.ERROR
    if name == "Fn::Join" and not (isinstance(value, list) and isinstance(value[0], str)):
        found = "Fn::Join without a text between the parts"
        return found, 'write ["", [PART, PART]]', Level.ERROR
    return None


def _names(name: str, value: Json, file: str, templates: TemplateSet) -> Problem | None:
    """Follow what a function names as far as it is at hand."""
    if name == "Fn::GetAtt":
        return _attribute(value, file, templates)
    if name == "Fn::FindInMap" and isinstance(value, list):
        return _entry(value, file, templates)
    known = templates.part(file, "Conditions")
    condition = text(value[0]) if name == "Fn::If" and isinstance(value, list) else None
    unknown = condition is not None and known is not None and condition not in known
    return _unknown("condition", condition or "", known or {}) if unknown else None


def _unknown(what: str, name: str, known: Iterable[str]) -> Problem:
    close = get_close_matches(name, list(known), 1, _CLOSE)
    listed = f"known: {', '.join(sorted(known))}" if known else "add it, or remove what names it"
    remedy = f"did you mean {close[0]}?" if close else listed
    return f"no {what} {shown(name)}", remedy, Level.ERROR


def _attribute(value: Json, file: str, templates: TemplateSet) -> Problem | None:
    target = templates.target({"Fn::GetAtt": value}, file)
    written = text(value[1]) if isinstance(value, list) and len(value) > 1 else None
    if isinstance(value, str):
        written = value.partition(".")[2]
    shape = table(CLOUDFORMATION).get(f"@{target.type}") if target is not None else None
    if written is None or target is None or not isinstance(shape, dict):
        return None
    names = [str(each) for each in shape["="]]
    found, remedy, level = _unknown("attribute", written, names)
    return None if written in names else (f"{target.type} has {found}", remedy, level)


def _entry(value: list[Json], file: str, templates: TemplateSet) -> Problem | None:
    """Follow the names of a mapping as far as they are written out, through every row if need be.

    CloudFormation User Guide, "Fn::FindInMap": without a default value the template is refused.
    """
    level: Json = templates.part(file, "Mappings")
    for at, (what, each) in enumerate(zip(("mapping", "entry", "entry"), value, strict=False)):
        name = text(each)
        if not isinstance(level, dict) or "Fn::Transform" in level:
            return None
        if name is None:
            return _in_every_row(value, level) if at == 1 else None
        if name not in level:
            return _unknown(what, name, level)
        level = level[name]
    return None


def _in_every_row(value: list[Json], rows: dict[str, Json]) -> Problem | None:
    """Follow a column where only CloudFormation knows the row."""
    column = text(value[2]) if len(value) == _FEWEST_OF_FIND else None
    known = {row: each for row, each in rows.items() if isinstance(each, dict)}
    lacking = [row for row, each in known.items() if column not in each]
    if column is None or len(known) < len(rows) or not lacking:
        return None
    columns = [key for row in known.values() for key in row]
    if len(lacking) == len(rows):
        return _unknown("entry", column, columns)
    # The row may be one that nobody takes.
    found = f"no entry {shown(column)} in the row {', '.join(lacking)}"
    return found, "add it there", Level.WARNING
