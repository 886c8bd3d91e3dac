"""What a resource type can do, and what it is given to do it.

Turns a template's properties into what a service's operation takes.

Most of them have the same names, but for the case of their first letters.
"""

import json
import re
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from botocore import xform_name

from megatron_eks.localcloud.aws.clients import Clients
from megatron_eks.localcloud.aws.values import ACCOUNT, Object, Value, pick

RESOURCE = ("UntagResource", "TagResource")
"""What most services call their operations on tags."""

_SUFFIX_LENGTH = 12
_LETTERS = string.ascii_uppercase + string.digits


@dataclass(frozen=True)
class Context:
    """One resource of one stack, and the services of its region."""

    clients: Clients
    region: str
    stack: str
    name: str
    """The resource's name in the template."""
    note: Callable[[str], None] = lambda _: None
    """Takes the physical id of what is made in several calls, right after the first of them: if a
    later one fails, it is deleted."""

    def new_name(self, limit: int = 128) -> str:
        """Make up a name as CloudFormation does where the template gives none."""
        suffix = "".join(secrets.choice(_LETTERS) for _ in range(_SUFFIX_LENGTH))
        return f"{f'{self.stack}-{self.name}'[: limit - _SUFFIX_LENGTH - 1]}-{suffix}"


class Setting(NamedTuple):
    """A property that an operation of its own sets."""

    puts: str
    takes: str = ""
    """What takes it away, with the physical id alone."""
    form: Callable[[Value], Object] | None = None
    """Its arguments; the property by its own name where there is none."""


class Handler:
    """A resource type. Properties come without functions."""

    kind: str
    service: str
    """Whose operations the next are; two of them with their arguments for the physical id."""
    creates: tuple[str, str]
    """An operation that makes it, and where the answer has the physical id.

    Without a place for that it is made of the properties of `identity`.
    """
    identity: tuple[str, ...] = ()
    made_up: int = 0
    """How long the name may be that it gets, as its only identity, where the template has none."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Properties that these operations call otherwise."""
    updates: tuple[str, ...] | None = None
    """What changes it in place, given all properties; with an argument for the physical id."""
    anew = False
    """Whether a change in place is what makes it, once more."""
    tagging: tuple[str, str] = RESOURCE
    tagged: tuple[str, str] | None = None
    """The argument of these operations that says whose tags they are, and its attribute."""
    deletes: tuple[str, ...]
    describes: tuple[str, ...] | None = None
    owner: str
    """What the operations of settings call the physical id."""
    settings: ClassVar[Mapping[str, Setting]] = {}
    """What is set once it is made, and at each change."""
    changes: ClassVar[Mapping[str, Setting]] = {}
    """What the operation that makes it takes, and none of `updates` does."""
    separator = "|"
    """Of the parts of a physical id, where the operations take several arguments."""
    arn = False
    """Whether the physical id is an ARN of which the operations take the last part."""
    answers: ClassVar[Mapping[str, str]] = {}
    """Attributes that templates of ours ask for, and where the describing operation has them, or of
    what they are made; empty for the physical id."""

    def create(self, context: Context, properties: Object) -> str:
        """Make the resource and return its physical id."""
        given = {**properties}
        if self.made_up:
            given.setdefault(self.identity[0], context.new_name(self.made_up))
        operation, path = self.creates
        answer = call(context, self.service, operation, given, self.renamed)
        parts = (str(given[name]) for name in self.identity)
        physical_id = str(pick(answer, path)) if path else self.separator.join(parts)
        context.note(physical_id)
        self.settle(context, physical_id, {}, given)
        return physical_id

    def settle(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Set what operations of their own set, once it is made and at each change."""
        for name, (puts, takes, form) in {**self.settings, **(old and self.changes)}.items():
            owner = {self.owner: physical_id} if new.get(name) != old.get(name) else None
            if owner and name in new:
                given = form(new[name]) if form else {name: new[name]}
                call(context, self.service, puts, {**given, **owner})
            elif owner and takes:
                call(context, self.service, takes, owner)

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change the resource in place, and its tags."""
        if self.anew:
            self.create(context, new)
            return
        if self.updates:
            operation, *arguments = self.updates
            given = {**new, **dict.fromkeys(arguments, physical_id)}
            call(context, self.service, operation, given, self.renamed)
        elif type(self).settle is Handler.settle and not (self.settings or self.changes):
            changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
            raise NotSupportedError(
                f"local AWS cannot change {', '.join(changed)} of {self.kind} {physical_id} in "
                f"place (resource {context.name})"
            )
        self.settle(context, physical_id, old, new)
        if self.tagged:
            argument, name = self.tagged
            owner = self.attributes(context, physical_id, new)[name] if name else physical_id
            change_tags(context.clients(self.service), self.tagging, {argument: owner}, old, new)

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the resource."""
        del properties
        self._ask(context, self.deletes, physical_id)

    def exists(self, context: Context, physical_id: str) -> bool:
        """Say whether it is there; asked only for what a template names, and may be taken over."""
        del context, physical_id
        return False

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return what Fn::GetAtt gives. Raises botocore's error if the resource is not there."""
        del properties
        found = self._ask(context, self.describes, physical_id) if self.describes else None
        words = {"region": context.region, "account": ACCOUNT, "id": physical_id}
        values = {
            name: path.format(**words)
            if "{" in path
            else pick(found, path)
            if path
            else physical_id
            for name, path in self.answers.items()
        }
        # Versions are texts in a template.
        return {name: str(each) if type(each) is int else each for name, each in values.items()}

    def _ask(self, context: Context, operation: tuple[str, ...], physical_id: str) -> Value:
        """Call an operation that takes the physical id alone, its parts, or a list of such."""
        name, *arguments = operation
        client = context.clients(self.service)
        members = client.meta.service_model.operation_model(name).input_shape.members
        parts = [last(physical_id)] if self.arn else [physical_id]
        if len(arguments) > 1:
            parts = physical_id.split(self.separator)
        given = {
            argument: [part] if members[argument].type_name == "list" else part
            for argument, part in zip(arguments, parts, strict=True)
        }
        return getattr(client, xform_name(name))(**given)


def last(arn: str) -> str:
    """Return what an ARN ends with, behind type and account."""
    return re.split("[:/]", arn)[-1]


def untagged(properties: Object) -> Object:
    """Return the properties without the tags, which are given by operations of their own."""
    return {name: value for name, value in properties.items() if name != "Tags"}


def change_tags(
    client: Value, operations: tuple[str, str], owner: Object, old: Object, new: Object
) -> None:
    """Remove the tags, by their keys, that are gone, and add those that are new or changed.

    `operations` take tags away and add them, both with `owner`; their models say in which form.
    """
    before, after = (tags_of(each) for each in (old, new))
    gone = sorted(before.keys() - after.keys())
    for operation, tags in zip(operations, (gone, after if after != before else {}), strict=True):
        shape = client.meta.service_model.operation_model(operation).input_shape
        (name,) = (each for each in shape.members if each.lower() in ("tags", "tagkeys"))
        if tags:
            member = shape.members[name]
            getattr(client, xform_name(operation))(**owner, **{name: _tags(tags, member)})


def _tags(tags: Value, shape: Value) -> Value:
    """Write tags as an operation takes them: keys, a mapping, or a list of keys with values."""
    if shape.type_name == "map" or shape.member.type_name == "string":
        return tags
    key, *value = shape.member.members
    return [
        {key: each, value[0]: tags[each]} if isinstance(tags, dict) else {key: each}
        for each in tags
    ]


def tags_of(properties: Object) -> Object:
    """Return a template's tags as a mapping; those of a node group have this form already."""
    given = properties.get("Tags", {})
    return given if isinstance(given, dict) else {each["Key"]: each["Value"] for each in given}


class NotSupportedError(Exception):
    """An update that is refused before anything has changed."""


def call(
    context: Context,
    service: str,
    operation: str,
    properties: Object,
    renamed: Mapping[str, str] | None = None,
    **more: Value,
) -> Object:
    """Call an operation with those of the properties that it knows, and with more."""
    client = context.clients(service)
    shape = client.meta.service_model.operation_model(operation).input_shape
    given = {(renamed or {}).get(name, name): value for name, value in properties.items()}
    tags = tags_of({"Tags": given.pop("Tags", None) or {}})
    for name in ("Tags", "tags"):
        if tags and name in shape.members:
            more[name] = _tags(tags, shape.members[name])
    arguments = {**_structure(given, shape, ignored=True), **more}
    answer: Object = getattr(client, xform_name(operation))(**arguments)
    return answer


def _structure(value: Object, shape: Value, *, ignored: bool = False) -> Object:
    members = {name.lower(): name for name in shape.members}
    found: Object = {}
    for name, inner in value.items():
        member = members.get(name.lower())
        if member is not None:
            found[member] = _value(inner, shape.members[member])
        elif not ignored:
            # Left as it is, for botocore to refuse.
            found[name] = inner
    return found


def _value(value: Value, shape: Value) -> Value:
    if shape.type_name == "structure" and isinstance(value, dict):
        return _structure(value, shape)
    if shape.type_name == "list" and isinstance(value, list):
        return [_value(each, shape.member) for each in value]
    if shape.type_name == "map" and isinstance(value, dict):
        return {key: _value(each, shape.value) for key, each in value.items()}
    if shape.type_name in ("integer", "long") and isinstance(value, str | float):
        return int(value)
    return _text(value) if shape.type_name == "string" else value


def _text(value: Value) -> Value:
    """Return a number, or a policy that a template has as an object, as a text."""
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value) if isinstance(value, int | float) else value
