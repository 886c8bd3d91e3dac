"""Templates that are deployed together: resources by type, and what they refer to."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial

from megatron_eks.config.load import Json, read_documents
from megatron_eks.guards.values import Found, Guards, Place, Row, Value, inside


@dataclass(frozen=True)
class Resource:
    """One resource of a template; `resource["Name"]` is a property of it."""

    name: str
    """The logical id."""
    type: str
    body: Value
    """The whole resource: `Type`, `Properties`, `DependsOn`, `DeletionPolicy`, ..."""
    properties: Value
    file: str

    def __getitem__(self, key: str) -> Value:
        """Return a property."""
        return self.properties[key]


class Templates:
    """The templates of one cluster, by file name."""

    def __init__(
        self, bodies: Mapping[str, Json], read: Callable[[str], str] | None = None
    ) -> None:
        self._bodies = bodies
        self._read = read
        self._lines: dict[str, dict[tuple[str | int, ...], int]] = {}
        self.resources = [each for file in bodies for each in self._resources(file)]
        self._by_type: dict[str, list[Resource]] = {}
        for resource in self.resources:
            self._by_type.setdefault(resource.type, []).append(resource)
        self._by_name = {(each.file, each.name): each for each in self.resources}

    def of(self, *types: str) -> list[Resource]:
        """Return the resources of some types, such as "EC2::LaunchTemplate"."""
        return [each for name in types for each in self._by_type.get(f"AWS::{name}", ())]

    def target(self, value: Value) -> Resource | None:
        """Return the resource that a Ref, a Fn::GetAtt or a Fn::ImportValue leads to.

        None is not wrong by itself: it may stand in a template that is not at hand.
        """
        function, given = _function(value)
        if function == "Fn::ImportValue":
            exported = self.exports.get(self.text(given))
            return self.target(exported) if exported else None
        if function not in {"Ref", "Fn::GetAtt"}:
            return None
        name = given[0].text or given.text  # of Fn::GetAtt: NAME.ATTRIBUTE, or a list of both
        return self._by_name.get((value.place.file, name.partition(".")[0]))

    def targets(self, *values: Value) -> list[Resource]:
        """Return the resources that values, or the elements of those that are lists, lead to."""
        every = [each for value in values for each in value.listed]
        return [found for each in every if (found := self.target(each))]

    def text(self, value: Value) -> str:
        """Return a text with its functions filled in: `arn:${AWS::Partition}:s3:::x`."""
        function, given = _function(value)
        if function == "Fn::Join" and isinstance(given[1].raw, list):
            return str(given[0].raw).join(map(self.text, given[1]))
        if function == "Fn::Sub":
            return given[0].text or given.text
        if function in {"Ref", "Fn::GetAtt"}:
            return f"${{{'.'.join(given.texts)}}}"
        if function == "Fn::ImportValue":
            exported = self.exports.get(self.text(given))
            return self.text(exported) if exported else ""
        return value.text if value.number is None else str(value.raw)

    def outputs(self, file: str) -> Iterator[tuple[str, Value]]:
        """Return the outputs of a template, by name."""
        return Value(self._bodies.get(file), Place(file, ()))["Outputs"].items()

    def users(self, resource: Resource) -> list[Resource]:
        """Return the resources that refer to one."""
        return self._users.get((resource.file, resource.name), [])

    @cached_property
    def _users(self) -> dict[tuple[str, str], list[Resource]]:
        found: dict[tuple[str, str], dict[str, Resource]] = {}
        for resource in self.resources:
            for part in inside(resource.body):
                if target := self.target(part):
                    by_name = found.setdefault((target.file, target.name), {})
                    by_name.setdefault(f"{resource.file} {resource.name}", resource)
        return {key: list(by_name.values()) for key, by_name in found.items()}

    @cached_property
    def exports(self) -> dict[str, Value]:
        """What the templates at hand export, by name."""
        outputs = [each for file in self._bodies for _, each in self.outputs(file)]
        named = ((self.text(each["Export"]["Name"]), each["Value"]) for each in outputs)
        return {name: value for name, value in named if name}

    def _resources(self, file: str) -> Iterator[Resource]:
        for name, body in Value(self._bodies[file], Place(file, ()))["Resources"].items():
            place = Place(file, ("Resources", name), partial(self._line, file, name))
            whole = Value(body.raw, place)
            properties = Value(whole["Properties"].raw, place)
            yield Resource(name, whole["Type"].text, whole, properties, file)

    def _line(self, file: str, name: str) -> int:
        """Return the line of a resource; the text is read again, with places, for the first one."""
        if self._read and file not in self._lines:
            places = [each.places for each in read_documents(self._read(file), file)]
            self._lines[file] = {key: at.line for each in places for key, at in each.items()}
        return self._lines.get(file, {}).get(("Resources", name), 1 if self._read else 0)


def _function(value: Value) -> tuple[str, Value]:
    only = isinstance(value.raw, dict) and len(value.raw) == 1
    return next(value.items()) if only else ("", value)


template_guard = Guards[Templates]()
"""Registers a guard of templates."""


def constants(
    resources: Iterable[Resource], code: StrEnum, *rows: Row, warns: object = False
) -> Found:
    """Report properties that are not there, or have another value than the right one."""
    for resource in resources:
        yield from resource.properties.must_hold(code, *rows, warns=warns)


def is_template(value: Json) -> bool:
    """Tell a template from other mappings."""
    resources = Value(value, Place("", ()))["Resources"]
    return any("::" in body["Type"].text for _, body in resources.items())
