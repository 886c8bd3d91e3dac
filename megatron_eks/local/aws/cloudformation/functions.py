"""Refuses uses of intrinsic functions that no value of a parameter could make right."""

from collections.abc import Callable, Iterator

from megatron_eks.local.aws.cloudformation.errors import ValidationError
from megatron_eks.local.aws.cloudformation.intrinsics import is_known
from megatron_eks.local.aws.values import Object, Value

# Function: how many arguments its list has.
_COUNTS = {
    "Fn::And": (2, 10),
    "Fn::Equals": (2, 2),
    "Fn::FindInMap": (3, 4),
    "Fn::If": (3, 3),
    "Fn::Join": (2, 2),
    "Fn::Not": (1, 1),
    "Fn::Or": (2, 10),
    "Fn::Select": (2, 2),
    "Fn::Split": (2, 2),
    "Fn::Cidr": (2, 3),
}
_LOGIC = ("Condition", "Fn::And", "Fn::Equals", "Fn::Not", "Fn::Or", "Fn::Contains")


def check_functions(template: Object) -> None:
    """Raise ValidationError for the first function that is used wrongly."""
    conditions = template.get("Conditions", {})
    for name, body in conditions.items():
        if not (isinstance(body, dict) and len(body) == 1 and next(iter(body)) in _LOGIC):
            raise ValidationError(
                f"Template format error: [/Conditions/{name}] Conditions can only be boolean "
                "operations on parameters and other conditions"
            )
        _check(body, template, "Conditions", in_condition=True)
        for wanted in _of(body, "Ref"):
            if wanted in template["Resources"]:
                raise ValidationError(
                    f"Template format error: Unresolved dependencies [{wanted}]. Cannot reference "
                    "resources in the Conditions block of the template"
                )
    for section in ("Resources", "Outputs"):
        for body in template.get(section, {}).values():
            if "Condition" in body:
                _known_condition(body["Condition"], conditions, section)
            _check(body.get("Properties", body.get("Value")), template, section)
            _check(body.get("Export"), template, section)


def _check(value: Value, template: Object, section: str, *, in_condition: bool = False) -> None:
    for name, argument in _functions(value):
        if not is_known(name):
            raise ValidationError(f"Template error: local AWS knows no function {name}")
        low, high = _COUNTS.get(name, (0, 0))
        if high and not (isinstance(argument, list) and low <= len(argument) <= high):
            count = str(low) if low == high else f"{low} to {high}"
            raise ValidationError(
                f"Template error: {name} in the {section} block of the template takes a list of "
                f"{count}"
            )
        if not _is_formed(name, argument):
            raise ValidationError(
                f"Template error: {name} in the {section} block of the template is malformed: "
                f"{argument!r}"
            )
        if name == "Fn::If":
            _known_condition(argument[0], template.get("Conditions", {}), section)
        if name == "Fn::FindInMap":
            _known_entry(argument, template.get("Mappings", {}))
    if in_condition:
        for wanted in _of(value, "Condition"):
            _known_condition(wanted, template["Conditions"], section)


def _is_formed(name: str, argument: Value) -> bool:
    """Tell whether the functions with several forms have one of them."""
    match name, argument:
        case "Fn::Sub", str() | [str(), dict()]:
            return True
        case "Fn::GetAtt", [str(), str() | dict()]:
            return True
        case "Fn::GetAtt", str():
            return "." in argument
    return name not in ("Fn::Sub", "Fn::GetAtt")


def _known_condition(name: Value, conditions: Object, section: str) -> None:
    if not isinstance(name, str) or name not in conditions:
        raise ValidationError(
            f"Template format error: Unresolved condition dependency {name} in the {section} block "
            "of the template"
        )


def _known_entry(argument: Value, mappings: Object) -> None:
    """Follow what is written out of a map's name and keys."""
    found: Value = mappings
    for depth, key in enumerate(argument[:3]):
        if not isinstance(key, str | int):
            return
        if not isinstance(found, dict) or str(key) not in {str(each) for each in found}:
            if len(argument) == len(_PLACES) + 1:
                # It has a default.
                return
            way = "::".join(map(str, argument[:3]))
            raise ValidationError(
                f"Template error: Unable to get mapping for {way}: no {_PLACES[depth]} {key}"
            )
        found = {str(name): inner for name, inner in found.items()}[str(key)]


_PLACES = ("map", "top-level key", "second-level key")


def _functions(value: Value) -> Iterator[tuple[str, Value]]:
    """Yield the functions in a value, with their arguments."""
    yield from _single(value, lambda key: key.startswith("Fn::"))


def _of(value: Value, name: str) -> Iterator[Value]:
    for _, argument in _single(value, lambda key: key == name):
        yield argument


def _single(value: Value, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Value]]:
    """Yield the objects of one key that is wanted, at any depth."""
    if isinstance(value, list):
        for inner in value:
            yield from _single(inner, wanted)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if len(value) == 1 and isinstance(key, str) and wanted(key):
                yield key, inner
            yield from _single(inner, wanted)
