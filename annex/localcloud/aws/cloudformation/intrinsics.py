"""Works out the intrinsic functions of a template."""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from megatron_eks.localcloud.aws.cloudformation.errors import (
    ResourceError,
    UnknownValueError,
    ValidationError,
)
from megatron_eks.localcloud.aws.values import Object, Value

SUBSTITUTION = re.compile(r"\$\{([^}]+)\}")
"""Names in the text of Fn::Sub."""

AFTER_APPLY = "{{changeSet:KNOWN_AFTER_APPLY}}"
"""What a change set shows for a value that does not exist yet, as AWS does."""


class _NoValue:
    """`AWS::NoValue`: the property that holds it is left out."""


NO_VALUE = _NoValue()


@dataclass(frozen=True)
class Made:
    """What a resource that exists gives to others."""

    physical_id: str
    attributes: Mapping[str, Value]


@dataclass
class Resolver:
    """Values of one template in one stack."""

    template: Object
    parameters: Mapping[str, Value]
    """Pseudo parameters too."""
    exports: Mapping[str, Value]
    made: dict[str, Made] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    """Names of the exports that were asked for."""

    def wanted(self) -> dict[str, Object]:
        """Return the resources whose condition holds."""
        return {
            name: body
            for name, body in self.template["Resources"].items()
            if "Condition" not in body or self.condition(body["Condition"])
        }

    def condition(self, name: str) -> bool:
        """Tell whether a condition of the template holds."""
        return bool(self.resolve(self.template["Conditions"][name]))

    def resolve(self, value: Value) -> Value:
        """Return a value without functions.

        Raises UnknownValueError for what does not exist yet, and ResourceError for what cannot be.
        """
        if isinstance(value, list):
            return [each for each in map(self.resolve, value) if each is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (name, argument), *_ = value.items()
            if name == "Ref":
                return self._ref(argument)
            if name == "Condition" and isinstance(argument, str):
                return self.condition(argument)
            if name.startswith("Fn::"):
                if name not in _FUNCTIONS:
                    raise ValidationError(f"Template error: {name} is not supported by local AWS")
                return _FUNCTIONS[name](self, argument)
        resolved = {key: self.resolve(inner) for key, inner in value.items()}
        return {key: inner for key, inner in resolved.items() if inner is not NO_VALUE}

    def preview(self, value: Value) -> Value:
        """Return a value in which what does not exist yet is marked as such."""
        try:
            return self.resolve(value)
        except UnknownValueError:
            if isinstance(value, list):
                return [each for each in map(self.preview, value) if each is not NO_VALUE]
            if isinstance(value, dict) and not _is_function(value):
                seen = {key: self.preview(inner) for key, inner in value.items()}
                return {key: inner for key, inner in seen.items() if inner is not NO_VALUE}
            return AFTER_APPLY

    def check_rules(self) -> None:
        """Refuse what the template's own rules forbid."""
        for rule in self.template.get("Rules", {}).values():
            for each in rule["Assertions"]:
                if not self.resolve(each["Assert"]):
                    raise ValidationError(f"Template validation error: {each['AssertDescription']}")

    def _ref(self, name: str) -> Value:
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in self.parameters:
            return self.parameters[name]
        return self._made(name).physical_id

    def _made(self, name: str) -> Made:
        if name not in self.made:
            raise UnknownValueError(name)
        return self.made[name]

    def get_att(self, argument: Value) -> Value:
        """Fn::GetAtt."""
        name, attribute = argument
        made = self._made(name)
        if attribute not in made.attributes:
            kind = self.template["Resources"][name]["Type"]
            raise ResourceError(
                f"Template error: resource {name} of type {kind} does not support attribute type "
                f"{attribute} in Fn::GetAtt"
            )
        return made.attributes[attribute]

    def import_value(self, argument: Value) -> Value:
        """Fn::ImportValue."""
        if argument not in self.exports:
            raise ResourceError(f"No export named {argument} found.")
        self.imported.add(argument)
        return self.exports[argument]

    def sub(self, argument: Value) -> str:
        """Fn::Sub."""

        def replace(found: re.Match[str]) -> str:
            name = found[1]
            return str(self.get_att(name.split(".", 1)) if "." in name else self._ref(name))

        return SUBSTITUTION.sub(replace, argument)

    def choose(self, argument: Value) -> Value:
        """Fn::If."""
        name, yes, no = argument
        return self.resolve(yes if self.condition(name) else no)

    def each(self, argument: Value) -> list[Value]:
        """Return the resolved arguments of a function that takes several."""
        return [self.resolve(inner) for inner in argument]


def _is_function(value: Object) -> bool:
    name = next(iter(value), "")
    return len(value) == 1 and (name == "Ref" or name.startswith("Fn::"))


def _join(resolver: Resolver, argument: Value) -> str:
    separator, parts = argument
    return str(separator).join(str(part) for part in resolver.resolve(parts))


def _equals(resolver: Resolver, argument: Value) -> bool:
    first, second = resolver.each(argument)
    return bool(first == second)


def _contains(resolver: Resolver, argument: Value) -> bool:
    values, wanted = resolver.each(argument)
    return wanted in values


# Those in the stacks of this project and in the template of `cdk bootstrap`.
_FUNCTIONS: dict[str, Callable[[Resolver, Value], Value]] = {
    "Fn::And": lambda r, a: all(r.each(a)),
    "Fn::Base64": lambda r, a: base64.b64encode(str(r.resolve(a)).encode()).decode(),
    "Fn::Contains": _contains,
    "Fn::Equals": _equals,
    "Fn::GetAtt": Resolver.get_att,
    "Fn::If": Resolver.choose,
    "Fn::ImportValue": Resolver.import_value,
    "Fn::Join": _join,
    "Fn::Not": lambda r, a: not r.each(a)[0],
    "Fn::Sub": Resolver.sub,
}
