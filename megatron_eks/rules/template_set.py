"""CloudFormation templates that are deployed together, and the references between them."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.config.load import Json
from megatron_eks.rules.values import is_absent, mapping, text, written

# A chain of exports longer than this is a circle.
_MAX_HOPS = 10
# CloudFormation User Guide, "Fn::ImportValue": the usual name is `${AWS::StackName}-Subnet`, and
# who imports it has the stack's name as a parameter: `${NetworkStack}-Subnet`.
_STACK_NAME = "${AWS::StackName}"
OF_STACK = re.compile(r"\$\{[A-Za-z0-9]+\}(?P<rest>[^$]+)")


@dataclass(frozen=True, eq=False)
class Resource:
    """One resource of a template; two of them are equal only when they are the same one."""

    file: str
    id: str
    type: str
    body: "Mapping[str, Json]"

    @cached_property
    def properties(self) -> "Mapping[str, Json]":
        """Its properties; none where they cannot be read."""
        return mapping(self.body.get("Properties")) or {}

    def find(
        self, code: Code, path: Path, found: str, remedy: str, level: Level = Level.ERROR
    ) -> Finding:
        """Report something about this resource; the path starts at its properties."""
        return Finding(code, ("Resources", self.id, *path), found, remedy, level, self.file)


_MACRO_TYPES = "AWS::Serverless::"


@dataclass(frozen=True)
class Names:
    """What the references of a template may name."""

    known: frozenset[str]
    whole: bool
    """Tell whether the template names its version or parameters: it is no fragment of one."""


class TemplateSet:
    """Resources by type over all templates, and what a reference points to."""

    def __init__(self, templates: "Mapping[str, Json]") -> None:
        self._resources: dict[tuple[str, str], Resource] = {}
        self._types: dict[str, list[Resource]] = defaultdict(list)
        self._names: dict[str, Names | None] = {}
        self._untyped: list[Resource] = []
        self._outputs: dict[str, Json] = {}
        self._parts: dict[str, Mapping[str, Json]] = {}
        # None where two templates export the same name: nobody can tell which one is meant.
        self._exports: dict[str, tuple[str, Json] | None] = {}
        self._of_stacks: dict[str, tuple[str, Json] | None] = {}
        for file, template in templates.items():
            if isinstance(template, dict):
                self._read(file, template)

    def resources(self, *types: str) -> Iterator[Resource]:
        """Return every resource of these types, template by template."""
        for name in types:
            yield from self._types.get(name, ())

    def everything(self) -> Iterator[Resource]:
        """Return every resource."""
        yield from self._resources.values()

    def files(self) -> "Iterator[tuple[str, dict[str, Json]]]":
        """Return each template that has resources, by its file."""
        yield from ((file, dict(template)) for file, template in self._parts.items())

    def without_type(self) -> Iterator[Resource]:
        """Return the resources that do not say what they are."""
        yield from self._untyped

    def outputs(self) -> "Iterator[tuple[str, Json]]":
        """Return the outputs of each template, by its file."""
        yield from self._outputs.items()

    def part(self, file: str, name: str) -> "dict[str, Json] | None":
        """Return a part of a whole template, such as its mappings; None where more may come."""
        names = self._names.get(file)
        part = mapping(self._parts.get(file, {}).get(name))
        loops = any(key.startswith("Fn::") for key in part or {})
        return None if names is None or not names.whole or loops else part

    def default(self, value: Json, file: str) -> Json:
        """Return a value, or the default of the parameter, or mapping, that it refers to."""
        name = text(value.get("Ref")) if isinstance(value, dict) else None
        keys = value.get("Fn::FindInMap") if isinstance(value, dict) else None
        if isinstance(keys, list):
            level: Json = self.part(file, "Mappings")
            for each in keys[:3]:
                key = text(self.default(each, file))
                level = level.get(key) if isinstance(level, dict) and key else None
            return value if level is None else level
        parameter = mapping((self.part(file, "Parameters") or {}).get(name or ""))
        return parameter["Default"] if parameter and "Default" in parameter else value

    def exported(self) -> list[str]:
        """Return the names that these templates export, where they are plain texts."""
        return [name for name in self._exports if not name.startswith("{")]

    def exporter(self, name: str) -> str | None:
        """Return the template that exports a name; None where none or several do."""
        found = self._exports.get(name)
        return found[0] if found else None

    def exported_by_stacks(self) -> list[str]:
        """Return what follows the stack's own name in the names that these templates export."""
        return [*self._of_stacks]

    def names(self, file: str) -> Names | None:
        """Return what a template's references may name; None where a macro may bring more."""
        return self._names.get(file)

    def modules(self, file: str) -> list[str]:
        """Return the names of a template's modules, which bring resources of their own.

        CloudFormation User Guide, "Reference module resources in CloudFormation templates": the
        name of the module and that of the resource in one, or with a dot between them.
        """
        parts = mapping(self._parts.get(file, {}).get("Resources")) or {}
        types = ((name, text((mapping(body) or {}).get("Type"))) for name, body in parts.items())
        return [name for name, type_ in types if type_ and type_.endswith("::MODULE")]

    def has_macro(self, file: str) -> bool:
        """Tell whether somebody's macro rewrites the template before CloudFormation reads it.

        Those of AWS take resources as they are described, and types of their own.
        """
        names = self._transforms(file)
        return any(not (isinstance(each, str) and each.startswith("AWS::")) for each in names)

    def has_transform(self, file: str, prefix: str) -> bool:
        """Tell whether a transform whose name begins so rewrites the template."""
        names = self._transforms(file)
        return any(isinstance(each, str) and each.startswith(prefix) for each in names)

    def _transforms(self, file: str) -> list[Json]:
        value = self._parts.get(file, {}).get("Transform")
        listed = value if isinstance(value, list) else [] if is_absent(value) else [value]
        return [each.get("Name") if isinstance(each, dict) else each for each in listed]

    def target(self, value: Json, file: str) -> Resource | None:
        """Return the resource that a reference in a template points to, if it is at hand."""
        for _ in range(_MAX_HOPS):
            if not isinstance(value, dict):
                return None
            name = value.get("Ref", value.get("Fn::GetAtt"))
            if name is not None:
                return self._resources.get((file, _logical_id(name)))
            export = self._export(value.get("Fn::ImportValue"), file)
            if export is None:
                return None
            file, value = export
        return None

    def _export(self, name: Json, importer: str) -> tuple[str, Json] | None:
        """Return what is exported by a name; the stack's own name in it may be a parameter."""
        exact = self._exports.get(_key(name))
        match = OF_STACK.fullmatch(written(name) or "") if exact is None else None
        if match is None:
            return exact
        found = self._of_stacks.get(match["rest"])
        # A stack cannot import from itself: what is meant is another stack of the same template.
        return None if found is None or found[0] == importer else found

    def made_in(self, file: str) -> set[str]:
        """Return the names of a template's resources."""
        return {*(mapping(self._parts.get(file, {}).get("Resources")) or {})}

    def may_be_any(self, value: Json, file: str) -> bool:
        """Tell whether a reference may point to any resource: a parameter, a condition.

        A text, or an import by a name that none of these templates exports, points elsewhere.
        """
        if not isinstance(value, dict) or is_absent(value) or self.target(value, file) is not None:
            return False
        name = text(value.get("Fn::ImportValue"))
        return name is None or name in self._exports

    def targets(self, values: Sequence[Json], file: str) -> list[Resource | None]:
        """Return what each reference points to."""
        return [self.target(value, file) for value in values]

    def _read(self, file: str, template: "Mapping[str, Json]") -> None:
        # Beside a loop or a macro anything that seems missing may yet come: then nothing is known.
        resources = mapping(template.get("Resources"))
        parameters = mapping(template.get("Parameters"))
        known = resources is not None and parameters is not None and "Transform" not in template
        # Types of a macro come with resources that it makes, though a program may name the macro.
        known = known and not any(map(_is_of_a_macro, (resources or {}).values()))
        # Rain, a packager, puts modules of its own in the place of a resource.
        types = [(mapping(each) or {}).get("Type") for each in (resources or {}).values()]
        known = known and not any(isinstance(each, dict) for each in types)
        whole = bool(parameters) or "AWSTemplateFormatVersion" in template
        names = Names(frozenset({**(resources or {}), **(parameters or {})}), whole)
        self._names[file] = names if known else None
        for name, body in (resources or {}).items():
            kind = text(body.get("Type")) if isinstance(body, dict) else None
            packed = isinstance(body, dict) and isinstance(body.get("Type"), dict)
            if isinstance(body, dict) and kind is None and not (packed or name.startswith("Fn::")):
                self._untyped.append(Resource(file, name, "", body))
            if isinstance(body, dict) and kind is not None:
                resource = Resource(file, name, kind, body)
                self._resources[file, name] = resource
                self._types[kind].append(resource)
        self._parts[file] = template
        self._outputs[file] = template.get("Outputs")
        for output in (mapping(template.get("Outputs")) or {}).values():
            export = mapping(output.get("Export")) if isinstance(output, dict) else None
            if isinstance(output, dict) and export and not is_absent(export.get("Name")):
                name = _key(export["Name"])
                self._exports[name] = None if name in self._exports else (file, output.get("Value"))
                said = written(export["Name"]) or ""
                if said.startswith(_STACK_NAME):
                    rest = said.removeprefix(_STACK_NAME)
                    twice = rest in self._of_stacks
                    self._of_stacks[rest] = None if twice else (file, output.get("Value"))


def _is_of_a_macro(body: Json) -> bool:
    return isinstance(body, dict) and (text(body.get("Type")) or "").startswith(_MACRO_TYPES)


def _logical_id(reference: Json) -> str:
    """Return the resource of `Ref: Name`, `Fn::GetAtt: [Name, Attribute]` or `Name.Attribute`."""
    first = reference[0] if isinstance(reference, list) and reference else reference
    return first.split(".", 1)[0] if isinstance(first, str) else ""


def _key(value: Json) -> str:
    """Return a text that is equal for equal values, such as two `Fn::Sub` of the same words."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
