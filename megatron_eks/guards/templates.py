"""Templates that are deployed together: resources, what they refer to, and policy documents."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property, partial

from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.load import Json, read_documents
from megatron_eks.guards.codes import Rule
from megatron_eks.guards.values import Place, Row, Value, inside


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

    def targets(self, values: Value) -> list[Resource]:
        """Return the resources that the elements of a list, or one value, lead to."""
        listed = list(values) if isinstance(values.raw, list) else [values]
        return [found for each in listed if (found := self.target(each))]

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
            for raw in _references(resource.properties.raw):
                if target := self.target(Value(raw, resource.body.place)):
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
    """Return the function of CloudFormation that a value is, and what is given to it."""
    only = isinstance(value.raw, dict) and len(value.raw) == 1
    return next(value.items()) if only else ("", value)


Guard = Callable[[Templates], Iterator[Finding]]

GUARDS: list[Guard] = []
"""Every guard of templates, in the order of their modules."""


def template_guard(guard: Guard) -> Guard:
    """Register a guard of templates."""
    GUARDS.append(guard)
    return guard


def constants(
    resources: list[Resource], code: StrEnum, rows: Sequence[Row], level: Level = Level.ERROR
) -> Iterator[Finding]:
    """Report properties that are not there, or have another value than the right one."""
    for resource in resources:
        yield from resource.properties.must_hold(code, rows, level)


def is_template(value: Json) -> bool:
    """Tell a template from other mappings."""
    resources = Value(value, Place("", ()))["Resources"]
    return any("::" in body["Type"].text for _, body in resources.items())


def _references(raw: Json) -> Iterator[Json]:
    if isinstance(raw, dict) and raw.keys() & {"Ref", "Fn::GetAtt", "Fn::ImportValue"}:
        yield raw
    nested = list(raw.values()) if isinstance(raw, dict) else raw
    for each in nested if isinstance(nested, list) else ():
        yield from _references(each)


# What `meks` reads (config/outputs.py): type, a part of the output's name, and the attribute.
_OUTPUTS = (
    ("FSx::FileSystem", "LustreId", ""),
    ("FSx::FileSystem", "LustreDnsName", ".DNSName"),
    ("FSx::FileSystem", "LustreMountName", ".LustreMountName"),
    ("EFS::FileSystem", "EfsId", ""),
    ("EFS::AccessPoint", "EfsAccessPointId", ".AccessPointId"),
    ("CodeBuild::Project", "BuildProject", ""),
    ("ECR::Repository", "Image", ".RepositoryUri"),
    ("EC2::Instance", "BastionId", ""),
)


@dataclass(frozen=True)
class Need:
    """What a statement must cover; `a|b` is either, and an empty text is anything."""

    code: StrEnum
    why: str  # what goes wrong else
    actions: tuple[str, ...]
    on: tuple[str, ...] = ()
    who: str = ""
    when: tuple[tuple[str, str, str], ...] = ()  # operator, condition key and value
    effect: str = "Allow"
    level: Level = Level.ERROR


def listed(value: Value) -> list[Value]:
    """Return the elements of a list, or the one value that stands instead of it."""
    return list(value) if isinstance(value.raw, list) else [value] if value else []


def statements(*documents: Value) -> list[Value]:
    """Return the statements of some policies."""
    return [each for document in documents for each in listed(document["Statement"])]


def allows(statement: Value, action: str) -> bool:
    """Tell whether a statement allows an action, on whatever resources."""
    return statement["Effect"].text == "Allow" and _covers(statement["Action"].texts, action)


def is_everybody(principal: Value) -> bool:
    """Tell whether a principal is whoever asks, in any account."""
    return "*" in (*principal.texts, *principal["AWS"].texts)


def texts(templates: Templates, value: Value) -> list[str]:
    """Return the texts of a value or a list; accounts and partitions as CloudFormation's own."""
    filled = [templates.text(each) for each in listed(value)]
    filled = [re.sub(r"\b[0-9]{12}\b", "${AWS::AccountId}", each) for each in filled]
    return [re.sub(r"^arn:aws[a-z-]*:", "arn:${AWS::Partition}:", each) for each in filled]


def needs(templates: Templates, documents: list[Value], need: Need) -> Iterator[Finding]:
    """Report the part of the nearest statement that is not as it must be; all, if none is near."""
    wrong = [_wrong(templates, each, need) for each in statements(*documents)]
    nearest = min(wrong, key=len, default=[])
    if documents and (nearest or not wrong):
        place = nearest[0] if 0 < len(nearest) < 3 else documents[0]["Statement"]  # noqa: PLR2004
        remedy = f"add to a statement: {need.effect} {', '.join(need.actions)}"
        remedy += f" to {need.who.split('|')[0]}" if need.who else ""
        remedy += f" on {' and '.join(need.on)}" if need.on else ""
        for test, key, value in need.when:
            remedy += f" with {test} {key}: {value.split('|')[0]}"
        verb = "allows" if need.effect == "Allow" else "denies"
        found = f"no statement {verb} {need.actions[0]} as needed: {need.why}"
        yield place.finding(need.code, found, remedy, need.level)


def _wrong(templates: Templates, each: Value, need: Need) -> list[Value]:
    principal, conditions = each["Principal"], each["Condition"]
    who = [e for kind in ("AWS", "Service") for e in texts(templates, principal[kind])]
    on = texts(templates, each["Resource"])
    tests = [(texts(templates, conditions[test][key]), right) for test, key, right in need.when]
    free = not need.who and not conditions  # who may do it always may do it then
    right = {
        "Principal": not need.who or _covers(principal.texts + who, need.who),
        "Effect": each["Effect"].raw == need.effect,
        "Action": all(_covers(each["Action"].texts, action) for action in need.actions),
        "Resource": all(_covers(on, wanted) for wanted in need.on),
        "Condition": free or all(_covers(given, value) for given, value in tests),
    }
    return [each[part] for part, is_right in right.items() if not is_right]


def _covers(given: list[str], wanted: str) -> bool:
    """Tell whether one of the patterns given holds what is wanted, or a choice of it."""
    pairs = [(choice.lower(), each.lower()) for choice in wanted.split("|") for each in given]
    return bool(given) if not wanted else any(fnmatchcase(*pair) for pair in pairs)


@template_guard
def wiring(templates: Templates) -> Iterator[Finding]:
    """Name nothing twice, import what is exported, and output what is read ("Fn::ImportValue")."""
    for kind, name, attribute in _OUTPUTS:
        for each in templates.of(kind):
            given = [value["Value"] for key, value in templates.outputs(each.file) if name in key]
            texts_given = [templates.text(value).partition(":")[0] for value in given]
            if f"${{{each.name}{attribute}}}" not in texts_given:
                found = f"no output {name} of {each.name}: `meks` does not find it"
                remedy = f"add {name} with a Ref, or Fn::GetAtt {attribute}"
                yield each.body["Outputs"].finding(Rule.REFERENCE, found, remedy)
    stacks = {each.partition(":")[0] for each in templates.exports}
    for part in (part for each in templates.resources for part in inside(each.body)):
        raw = part.raw if isinstance(part.raw, list) else []
        again = [at for at, each in enumerate(raw) if each in raw[:at]]
        for at in again if not part.name.startswith("Fn::") else ():
            found = f"it stands in {part.name} twice: AWS may refuse it"
            yield part[at].finding(Rule.TWICE, found, "remove one of the two", Level.WARNING)
        if part["Statement"]:
            version, why = part["Version"], "variables in the policy are plain text"
            yield from version.must_be(Rule.POLICY, "2012-10-17", why=why, level=Level.WARNING)
        value = part["Fn::ImportValue"]
        stack, _, name = value.text.partition(":")
        if stack in stacks and value.text not in templates.exports:
            found = f"{stack} exports no {name}: CloudFormation refuses the stack"
            yield value.finding(Rule.REFERENCE, found, f"correct it, or add the output to {stack}")
