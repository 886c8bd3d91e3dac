"""Turns a template's properties into what a service's operation takes.

Most of them have the same names, but for the case of their first letters.
"""

import json
from collections.abc import Mapping

from botocore import xform_name

from megatron_eks.local.aws.resources.handler import Context
from megatron_eks.local.aws.values import Object, Value


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
    arguments = {**_structure(given, shape, ignored=True), **more}
    answer: Object = getattr(client, xform_name(operation))(**arguments)
    return answer


def shaped(context: Context, service: str, operation: str, member: str, value: Value) -> Value:
    """Return one argument of an operation in the form that it takes."""
    model = context.clients(service).meta.service_model
    return _value(value, model.operation_model(operation).input_shape.members[member])


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
