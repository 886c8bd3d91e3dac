"""Rule over CloudFormation's own functions: their names, and what they take."""

from collections.abc import Iterator
from difflib import get_close_matches

from megatron_eks.config.errors import Code, Finding, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.shapes import CLOUDFORMATION, table
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import shown, text

_CLOSE = 0.7
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
}


def functions(templates: TemplateSet) -> Iterator[Finding]:
    """Require functions that CloudFormation has, with what each of them takes.

    CloudFormation User Guide, "Intrinsic function reference", and the attributes of each type for
    Fn::GetAtt; the template is refused otherwise.
    """
    for resource in templates.everything():
        for path, name, value in _calls(dict(resource.properties), ()):
            yield from _call(resource, path, name, value)
            if name == "Fn::GetAtt":
                yield from _attribute(resource, path, value, templates)


def _calls(value: Json, path: Path) -> Iterator[tuple[Path, str, Json]]:
    children = enumerate(value) if isinstance(value, list) else ()
    for key, each in value.items() if isinstance(value, dict) else children:
        yield from _calls(each, (*path, key))
        if isinstance(key, str) and key.startswith("Fn::") and ":" not in key[4:]:
            yield path, key, each


def _call(resource: Resource, path: Path, name: str, value: Json) -> Iterator[Finding]:
    if name not in _FUNCTIONS:
        close = get_close_matches(name, _FUNCTIONS, 1, _CLOSE)
        remedy = f"did you mean {close[0]}?" if close else "use one of CloudFormation's"
        found = f"CloudFormation has no function {shown(name)}"
        yield resource.find(Code.FUNCTION, path, found, remedy)
        return
    counts = _FUNCTIONS[name]
    if counts and isinstance(value, list) and len(value) not in counts:
        found = f"{name} with {len(value)} arguments"
        remedy = f"give it {' or '.join(map(str, counts))}"
        yield resource.find(Code.FUNCTION, path, found, remedy)
    elif name == "Fn::Join" and not (isinstance(value, list) and isinstance(value[0], str)):
        found, remedy = "Fn::Join without a text between the parts", 'write ["", [PART, PART]]'
        yield resource.find(Code.FUNCTION, path, found, remedy)


def _attribute(
    resource: Resource, path: Path, value: Json, templates: TemplateSet
) -> Iterator[Finding]:
    target = templates.target({"Fn::GetAtt": value}, resource.file)
    written = text(value[1]) if isinstance(value, list) and len(value) > 1 else None
    if isinstance(value, str):
        written = value.partition(".")[2]
    known = table(CLOUDFORMATION).get(f"@{target.type}") if target is not None else None
    if written is None or target is None or not isinstance(known, dict):
        return
    names = [str(each) for each in known["="]]
    if written not in names:
        close = get_close_matches(written, names, 1, _CLOSE)
        remedy = f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
        found = f"{target.type} has no attribute {shown(written)}"
        yield resource.find(Code.FUNCTION, path, found, remedy)
