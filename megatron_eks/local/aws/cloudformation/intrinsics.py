"""Works out the intrinsic functions of a template."""

import base64
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from megatron_eks.local.aws.cloudformation.errors import (
    ResourceError,
    UnknownValueError,
    ValidationError,
)
from megatron_eks.local.aws.values import Object, Value

_SUBSTITUTION = re.compile(r"\$\{(!?)([^}]+)\}")

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
    zones: tuple[str, ...]
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
        if name not in self.template.get("Conditions", {}):
            raise ValidationError(f"Template error: unresolved condition dependency {name}")
        return self._true(self.template["Conditions"][name])

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
                return self._function(name, argument)
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
            if "RuleCondition" in rule and not self._true(rule["RuleCondition"]):
                continue
            for each in rule.get("Assertions", []):
                if not self._true(each["Assert"]):
                    text = each.get("AssertDescription", "an assertion of the template failed")
                    raise ValidationError(f"Template validation error: {text}")

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

    def _attribute(self, name: str, attribute: str) -> Value:
        made = self._made(name)
        if attribute not in made.attributes:
            kind = self.template["Resources"][name]["Type"]
            raise ResourceError(
                f"Template error: resource {name} of type {kind} does not support attribute type "
                f"{attribute} in Fn::GetAtt"
            )
        return made.attributes[attribute]

    def _function(self, name: str, argument: Value) -> Value:
        function = _FUNCTIONS.get(name)
        if function is None:
            raise ValidationError(f"Template error: {name} is not supported by local AWS")
        return function(self, argument)

    def _true(self, value: Value) -> bool:
        found = self.resolve(value)
        return found is True or found == "true"

    def get_att(self, argument: Value) -> Value:
        """Fn::GetAtt."""
        name, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
        return self._attribute(name, self.resolve(attribute))

    def import_value(self, argument: Value) -> Value:
        """Fn::ImportValue."""
        name = self.resolve(argument)
        if name not in self.exports:
            raise ResourceError(f"No export named {name} found.")
        self.imported.add(name)
        return self.exports[name]

    def sub(self, argument: Value) -> str:
        """Fn::Sub."""
        text, given = (argument, {}) if isinstance(argument, str) else argument

        def replace(found: re.Match[str]) -> str:
            literal, name = found.groups()
            if literal:
                return f"${{{name}}}"
            if name in given:
                return str(self.resolve(given[name]))
            if "." in name:
                return str(self.get_att(name))
            return str(self._ref(name))

        return _SUBSTITUTION.sub(replace, text)

    def find_in_map(self, argument: Value) -> Value:
        """Fn::FindInMap."""
        name, first, second = (self.resolve(each) for each in argument[:3])
        try:
            return self.template["Mappings"][name][first][second]
        except KeyError:
            raise ValidationError(
                f"Template error: Unable to get mapping for {name}::{first}::{second}"
            ) from None

    def choose(self, argument: Value) -> Value:
        """Fn::If."""
        name, yes, no = argument
        return self.resolve(yes if self.condition(name) else no)

    def each(self, argument: Value) -> list[Value]:
        """Return the resolved arguments of a function that takes several."""
        return [self.resolve(inner) for inner in argument]


def is_known(name: str) -> bool:
    """Tell whether a function can be worked out here."""
    return name in _FUNCTIONS


def _is_function(value: Object) -> bool:
    name = next(iter(value), "")
    return len(value) == 1 and (name == "Ref" or name.startswith("Fn::"))


def _join(resolver: Resolver, argument: Value) -> str:
    separator, parts = argument
    return str(separator).join(str(part) for part in resolver.resolve(parts))


def _select(resolver: Resolver, argument: Value) -> Value:
    index, values = resolver.each(argument)
    if not 0 <= int(index) < len(values):
        raise ResourceError(f"Template error: Fn::Select cannot select index {index}")
    return values[int(index)]


def _cidr(resolver: Resolver, argument: Value) -> list[str]:
    block, count, bits = resolver.each([*argument, "8"][:3])
    subnets = ipaddress.ip_network(block).subnets(new_prefix=32 - int(bits))
    return [str(subnet) for subnet, _ in zip(subnets, range(int(count)), strict=False)]


def _split(resolver: Resolver, argument: Value) -> list[str]:
    separator, text = resolver.each(argument)
    return str(text).split(separator)


def _equals(resolver: Resolver, argument: Value) -> bool:
    first, second = resolver.each(argument)
    return str(first) == str(second)


def _contains(resolver: Resolver, argument: Value) -> bool:
    values, wanted = resolver.each(argument)
    return str(wanted) in map(str, values)


_FUNCTIONS: dict[str, Callable[[Resolver, Value], Value]] = {
    "Fn::And": lambda r, a: all(each in (True, "true") for each in r.each(a)),
    "Fn::Base64": lambda r, a: base64.b64encode(str(r.resolve(a)).encode()).decode(),
    "Fn::Cidr": _cidr,
    "Fn::Contains": _contains,
    "Fn::Equals": _equals,
    "Fn::FindInMap": Resolver.find_in_map,
    "Fn::GetAZs": lambda r, _: list(r.zones),
    "Fn::GetAtt": Resolver.get_att,
    "Fn::If": Resolver.choose,
    "Fn::ImportValue": Resolver.import_value,
    "Fn::Join": _join,
    "Fn::Not": lambda r, a: r.each(a)[0] not in (True, "true"),
    "Fn::Or": lambda r, a: any(each in (True, "true") for each in r.each(a)),
    "Fn::Select": _select,
    "Fn::Split": _split,
    "Fn::Sub": Resolver.sub,
}
