"""Whether the overrides of a Megatron-Bridge job name values that its configuration has."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TypeAlias

from megatron_eks.catalog.bridge_fields import FIELDS, VERSION, Field
from megatron_eks.catalog.megatron_options import WORDS
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, choices

Value: TypeAlias = bool | float | str
"""What a job file may write."""

_OUR_IMAGE = "megatron"
# Longer lists than this help nobody; then the field's own words find its neighbours.
_ALL, _SOME = 30, 5
_WRITTEN = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a word",
}
_KNOWN_ELSEWHERE = {"env_vars": "set runtime.env"}
# Words that Megatron asks for by name, where the field takes any (get_megatron_optimizer).
_MORE_CHOICES = {"optimizer.optimizer": WORDS["--optimizer"]}


def level_in(image: str) -> Level:
    """Return how sure a finding is: an image of one's own may have another Megatron-Bridge."""
    return Level.ERROR if image == _OUR_IMAGE else Level.WARNING


def check_override(image: str, name: str, value: Value) -> Iterator[Finding]:
    """Yield an override that the pinned Megatron-Bridge has no place for, or another kind of."""
    problem = _problem(name, value)
    if problem is not None:
        found, remedy = problem
        yield Finding(Code.OVERRIDE, ("overrides", name), found, remedy, level_in(image))


def _problem(name: str, value: Value) -> tuple[str, str] | None:
    """Return what is wrong, and what to do."""
    block, _, rest = name.partition(".")
    first = rest.partition(".")[0]
    if (plain := name.lstrip("+~")) != name:
        return "+ and ~ are signs of Hydra", f"write {plain}"
    if block in _KNOWN_ELSEWHERE:
        return f"{block} is the job file's", _KNOWN_ELSEWHERE[block]
    fields = FIELDS.get(block)
    if fields is None:
        return f"Megatron-Bridge {VERSION} has no block {block}", choices(block, FIELDS)
    field = fields.get(first)
    if field is None:
        return f"{block} of Megatron-Bridge {VERSION} has no {first}", _near(block, first, fields)
    if first != rest:
        # A value inside a value, whose class is the recipe's choice.
        return None
    return _value(name, value, field)


def _value(name: str, value: Value, field: Field) -> tuple[str, str] | None:
    if not field.kinds:
        return f"{name} takes what a job file cannot write", "leave it to the recipe"
    if not field.kinds & _kinds(value):
        kinds = field.kinds - {"int"} if "float" in field.kinds else field.kinds
        wanted = " or ".join(words for kind, words in _WRITTEN.items() if kind in kinds)
        return f"{value!r}, and {name} takes {wanted}", f"write {wanted}"
    known = field.choices or _MORE_CHOICES.get(name, ())
    if isinstance(value, str) and known and value not in known:
        return f"{name} takes no {value!r}", choices(value, known)
    return None


def _near(block: str, name: str, fields: Mapping[str, object]) -> str:
    if len(fields) <= _ALL:
        return choices(name, fields)
    words = set(name.split("_"))
    near = get_close_matches(name, fields, _SOME)
    near += sorted(each for each in fields if words & set(each.split("_")) and each not in near)
    if not near:
        return f"name one of its {len(fields)} values: megatron.bridge, ConfigContainer.{block}"
    rest = f" near are {', '.join(near[1:_SOME])}" if near[1:] else ""
    return f"did you mean {near[0]!r}?{rest}"


def _kinds(value: Value) -> set[str]:
    """Return what a value may stand for: a whole number is a number too."""
    name = type(value).__name__
    return {"int", "float"} if name == "int" else {name}
