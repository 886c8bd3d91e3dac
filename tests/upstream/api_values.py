"""What the services' own APIs say of values that AWS's registry leaves open.

CloudFormation hands the properties of these types to one call of the service, under the same names.
The registry writes many of them down as any text or any number; botocore, which is generated from
the services' models, knows the texts to choose from and the bounds.
"""

from functools import cache
from typing import Any

import botocore.session

# A shape of megatron_eks/rules/shapes, or a model of botocore, which have no narrower type.
Json = Any

_CALLS = {
    "AWS::Budgets::Budget": ("budgets", "CreateBudget"),
    "AWS::CodeBuild::Project": ("codebuild", "CreateProject"),
    "AWS::FSx::DataRepositoryAssociation": ("fsx", "CreateDataRepositoryAssociation"),
    "AWS::FSx::FileSystem": ("fsx", "CreateFileSystem"),
}
# What AWS adds to by the month, and what a rule of our own reads with a better answer.
_OPEN = frozenset({"InstanceType"})


def settle(kind: str, shape: Json) -> Json:
    """Return the shape of a resource type with the choices and bounds of its API in it."""
    call = _CALLS.get(kind)
    return shape if call is None else _settled(shape, _input(*call))


@cache
def _input(service: str, operation: str) -> Json:
    model = botocore.session.get_session().get_service_model(service)
    return model.operation_model(operation).input_shape


def _settled(shape: Json, api: Json) -> Json:
    if isinstance(shape, list) and api.type_name == "list":
        return [_settled(shape[0], api.member)]
    if isinstance(shape, dict) and api.type_name == "structure":
        members = {name.lower(): each for name, each in api.members.items() if name not in _OPEN}
        return {
            key: _settled(inner, members[name]) if name in members else inner
            for key, inner in shape.items()
            for name in [key.removesuffix("!").lower()]
        }
    if shape == "text" and api.type_name == "string" and api.enum:
        return {"=": sorted(api.enum)}
    bounds = [api.metadata.get(each, "-") for each in ("min", "max")]
    if shape in ("whole", "number") and set(bounds) != {"-"}:
        return " ".join(map(str, [shape, *bounds]))
    return shape
