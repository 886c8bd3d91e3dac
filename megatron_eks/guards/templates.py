"""Templates that are deployed together: resources by type, and what they refer to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json, read_documents
from megatron_eks.guards.values import Place, Row, Value


@dataclass(frozen=True)
class Resource:
    """One resource of a template; `resource["Name"]` is a property of it."""

    name: str
    """The logical id."""
    type: str
    body: Value
    """The whole resource: `Type`, `Properties`, `DependsOn`, `DeletionPolicy`, ..."""
    properties: Value

    def __getitem__(self, key: str) -> Value:
        """Return a property."""
        return self.properties[key]

    @property
    def file(self) -> str:
        """The file of its template."""
        return self.body.place.file


class Templates:
    """The templates of one cluster, by file name."""

    def __init__(
        self, bodies: Mapping[str, Json], read: Callable[[str], str] | None = None
    ) -> None:
        self._bodies = bodies
        self._read = read
        self._places: dict[str, dict[tuple[str | int, ...], int]] = {}
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
        return self._target(value.raw, value.place.file)

    def targets(self, values: Value) -> list[Resource]:
        """Return the resources that the elements of a list, or one value, lead to."""
        listed = list(values) if isinstance(values.raw, list) else [values]
        return [found for each in listed if (found := self.target(each))]

    def text(self, value: Value) -> str:
        """Return a text with its Fn::Join and Fn::Sub filled in: `arn:${AWS::Partition}:s3:::x`."""
        return self._text(value.raw, value.place.file)

    def exports(self, name: str) -> bool:
        """Tell whether a template at hand exports a value by that name."""
        return name in self._exports

    def outputs(self, file: str) -> Iterator[tuple[str, Value]]:
        """Return the outputs of a template, by name."""
        return Value(self._bodies.get(file), Place(file, ()))["Outputs"].items()

    def users(self, resource: Resource) -> list[Resource]:
        """Return the resources that refer to one."""
        return self._users.get((resource.file, resource.name), [])

    @cached_property
    def _users(self) -> dict[tuple[str, str], list[Resource]]:
        found: dict[tuple[str, str], list[Resource]] = {}
        for resource in self.resources:
            for raw in _references(resource.properties.raw):
                target = self._target(raw, resource.file)
                if target and resource not in found.setdefault((target.file, target.name), []):
                    found[target.file, target.name].append(resource)
        return found

    @cached_property
    def _exports(self) -> dict[str, tuple[Json, str]]:
        found: dict[str, tuple[Json, str]] = {}
        for file, body in self._bodies.items():
            outputs = Value(body, Place(file, ()))["Outputs"]
            for output in (each for _, each in outputs.items()):
                if name := self._text(output["Export"]["Name"].raw, file):
                    found[name] = (output["Value"].raw, file)
        return found

    def _resources(self, file: str) -> Iterator[Resource]:
        root = Value(self._bodies[file], Place(file, ()))
        for name, body in root["Resources"].items():
            place = Place(file, ("Resources", name), partial(self._line, file, name))
            whole = Value(body.raw, place)
            properties = Value(whole["Properties"].raw, place)
            yield Resource(name, whole["Type"].text, whole, properties)

    def _line(self, file: str, name: str) -> int:
        """Return the line of a resource; the text is read again, with places, for the first one."""
        if self._read is None:
            return 0
        if file not in self._places:
            places = [each.places for each in read_documents(self._read(file), file)]
            self._places[file] = {key: at.line for each in places for key, at in each.items()}
        return self._places[file].get(("Resources", name), 1)

    def _target(self, raw: Json, file: str) -> Resource | None:
        if not isinstance(raw, dict) or len(raw) != 1:
            return None
        (function, given), *_ = raw.items()
        if function == "Fn::ImportValue":
            value, origin = self._exports.get(self._text(given, file), (None, file))
            return self._target(value, origin)
        if function == "Fn::GetAtt":
            given = given[0] if isinstance(given, list) and given else given
            given = given.split(".")[0] if isinstance(given, str) else None
        elif function != "Ref":
            return None
        return self._by_name.get((file, given)) if isinstance(given, str) else None

    def _text(self, raw: Json, file: str) -> str:
        if isinstance(raw, dict) and len(raw) == 1:
            (function, given), *_ = raw.items()
            return self._filled(function, given, file)
        plain = isinstance(raw, str | int | float) and not isinstance(raw, bool)
        return str(raw) if plain else ""

    def _filled(self, function: str, given: Json, file: str) -> str:
        """Return what a function of CloudFormation makes, with what only AWS knows as `${...}`."""
        listed = given if isinstance(given, list) else [given]
        if function == "Fn::Join" and listed and isinstance(listed[-1], list):
            return str(listed[0]).join(self._text(each, file) for each in listed[-1])
        if function == "Fn::Sub":
            return self._text(listed[0] if listed else "", file)
        if function in {"Ref", "Fn::GetAtt"}:
            return f"${{{'.'.join(map(str, listed))}}}"
        if function == "Fn::ImportValue":
            value, origin = self._exports.get(self._text(given, file), (None, file))
            return self._text(value, origin)
        return ""


Guard = Callable[[Templates], Iterator[Finding]]

GUARDS: list[Guard] = []
"""Every guard of templates, in the order of their modules."""


def template_guard(guard: Guard) -> Guard:
    """Register a guard of templates."""
    GUARDS.append(guard)
    return guard


def constants(
    resources: list[Resource], code: Code, rows: Sequence[Row], level: Level = Level.ERROR
) -> Iterator[Finding]:
    """Report properties that are not there, or have another value than the right one."""
    for resource in resources:
        yield from resource.properties.must_hold(code, rows, level)


def is_template(value: Json) -> bool:
    """Tell a template from other mappings."""
    resources = Value(value, Place("", ()))["Resources"]
    return any("::" in body["Type"].text for _, body in resources.items())


def _references(raw: Json) -> Iterator[Json]:
    if isinstance(raw, list):
        for each in raw:
            yield from _references(each)
    elif isinstance(raw, dict):
        if raw.keys() & {"Ref", "Fn::GetAtt", "Fn::ImportValue"}:
            yield raw
        for each in raw.values():
            yield from _references(each)
