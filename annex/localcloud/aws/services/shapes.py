"""Refuses requests that do not have the shape of AWS's own models, whoever sends them.

botocore checks types and required members before it sends anything, and leaves enumerations,
patterns and upper limits to the service. Other clients leave more.
"""

from collections.abc import Callable, Iterator

from moto.core.responses import ActionResult, BaseResponse
from moto.core.utils import get_service_model

from megatron_eks.localcloud.aws.patterns import matches_all
from megatron_eks.localcloud.aws.services.operation import ServiceError, parameters
from megatron_eks.localcloud.aws.values import Value

# Services whose requests are checked, and how each calls what it refuses. Those of S3 are mostly
# headers and bytes.
_CODES = {
    **dict.fromkeys(("cloudformation", "iam"), "ValidationError"),
    **dict.fromkeys(("codebuild", "efs", "kms", "ssm"), "ValidationException"),
    **dict.fromkeys(("ecr", "eks", "logs"), "InvalidParameterException"),
    "ec2": "InvalidParameterValue",
    "fsx": "BadRequest",
}


_LIMITED = ("string", "list", "map", "blob")


def check_requests() -> None:
    """Let every service look at a request's shape before it acts; once in a process."""
    act: Callable[[BaseResponse], Value] = BaseResponse.call_action

    def call_action(response: BaseResponse) -> Value:
        refusal = _refusal(response)
        if refusal is None:
            return act(response)
        return response.serialized(ActionResult(refusal))

    setattr(BaseResponse, "call_action", call_action)  # noqa: B010 -- a method is no attribute to mypy


def _refusal(response: BaseResponse) -> ServiceError | None:
    service = response.boto3_service_name
    if service not in _CODES:
        return None
    action = response._get_action()  # noqa: SLF001 -- moto has no public name for it
    model = get_service_model(service)
    if action not in model.operation_names:
        return None
    shape = model.operation_model(action).input_shape
    if shape is None:
        return None
    found = list(mistakes(parameters(response), shape))
    if not found:
        return None
    text = f"{len(found)} validation error{'s' * (len(found) > 1)} detected: {'; '.join(found)}"
    return ServiceError(_CODES[service], text)


def mistakes(value: Value, shape: Value, path: str = "") -> Iterator[str]:
    """Yield what a model forbids in a value, in the words that AWS uses."""
    if value is None:
        return
    if shape.type_name == "structure":
        yield from _members(value, shape, path)
    elif shape.type_name == "list":
        for number, inner in enumerate(value, start=1):
            yield from mistakes(inner, shape.member, f"{path}.{number}.member")
    elif shape.type_name == "map":
        for key, inner in value.items():
            yield from mistakes(inner, shape.value, f"{path}.{key}.member")
    yield from _limits(value, shape, path)


def _members(value: Value, shape: Value, path: str) -> Iterator[str]:
    for name in shape.required_members:
        if name not in value:
            yield f"Value null at '{_join(path, name)}' {_MUST} not be null"
    for name, inner in value.items():
        if name in shape.members:
            yield from mistakes(inner, shape.members[name], _join(path, name))


_MUST = "failed to satisfy constraint: Member must"


def _limits(value: Value, shape: Value, path: str) -> Iterator[str]:
    limits, kind = shape.metadata, shape.type_name
    place = f"Value '{value}' at '{path}' {_MUST}"
    options = limits.get("enum")
    if kind == "string" and options and value not in options:
        yield f"{place} satisfy enum value set: [{', '.join(options)}]"
    pattern = limits.get("pattern")
    if kind == "string" and pattern and not matches_all(pattern, value):
        yield f"{place} satisfy regular expression pattern: {pattern}"
    if kind in _LIMITED:
        size, what = len(value), "have length"
    elif kind in ("integer", "long", "float", "double"):
        size, what = value, "have value"
    else:
        return
    if "min" in limits and size < limits["min"]:
        yield f"{place} {what} greater than or equal to {limits['min']}"
    if "max" in limits and size > limits["max"]:
        yield f"{place} {what} less than or equal to {limits['max']}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
