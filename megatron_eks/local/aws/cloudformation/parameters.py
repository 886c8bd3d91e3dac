"""The parameters of a template: what they may be, and what they are."""

import re
from collections.abc import Callable, Iterator, Mapping

from megatron_eks.local.aws.cloudformation.errors import ValidationError
from megatron_eks.local.aws.values import Object, Value

_SSM_PARAMETER = "AWS::SSM::Parameter::Value<"
_ATTRIBUTES = (
    *("AllowedPattern", "AllowedValues", "ConstraintDescription", "Default", "Description"),
    *("MaxLength", "MaxValue", "MinLength", "MinValue", "NoEcho", "Type"),
)
# User Guide, "CloudFormation-supplied parameter types".
_OF_AWS = (
    *("AWS::EC2::AvailabilityZone::Name", "AWS::EC2::Image::Id", "AWS::EC2::Instance::Id"),
    *("AWS::EC2::KeyPair::KeyName", "AWS::EC2::SecurityGroup::GroupName"),
    *("AWS::EC2::SecurityGroup::Id", "AWS::EC2::Subnet::Id", "AWS::EC2::VPC::Id"),
    *("AWS::EC2::Volume::Id", "AWS::Route53::HostedZone::Id"),
)
_TYPES = (
    *("CommaDelimitedList", "List<Number>", "List<String>", "Number", "String"),
    *("AWS::SSM::Parameter::Name", *_OF_AWS, *(f"List<{each}>" for each in _OF_AWS)),
)


def check_parameters(template: Object) -> None:
    """Refuse what is no definition of a parameter. Raises ValidationError."""
    for name, body in template.get("Parameters", {}).items():
        if not isinstance(body, dict) or "Type" not in body:
            raise ValidationError(
                "Template format error: Every Parameters object must contain a Type member."
            )
        if not str(name).isalnum():
            raise ValidationError(f"Template format error: Parameter name {name} is invalid")
        for key in body:
            if key not in _ATTRIBUTES:
                raise ValidationError(
                    f"Invalid template parameter property '{key}' [/Parameters/{name}]"
                )
        kind = str(body["Type"])
        if kind not in _TYPES and not kind.startswith(_SSM_PARAMETER):
            raise ValidationError(
                f"Template format error: Unrecognized parameter type: {kind} [/Parameters/{name}]"
            )


def parameter_values(
    template: Object,
    given: Mapping[str, str],
    previous: Mapping[str, str],
    stored: Mapping[str, str],
) -> dict[str, Value]:
    """Return the value of each parameter; those of SSM type are looked up in `stored`."""
    parameters = template.get("Parameters", {})
    missing = [
        name
        for name, body in parameters.items()
        if given.get(name, previous.get(name, body.get("Default"))) is None
    ]
    if missing:
        raise ValidationError(f"Parameters: [{', '.join(missing)}] must have values")
    values: dict[str, Value] = {}
    for name, body in parameters.items():
        value = given.get(name, previous.get(name, body.get("Default")))
        if body["Type"].startswith(_SSM_PARAMETER):
            if value not in stored:
                raise ValidationError(
                    f"Unable to fetch parameters [{value}] from parameter store for this account."
                )
            values[name] = stored[value]
            continue
        is_list = body["Type"].startswith(("CommaDelimitedList", "List<"))
        # Spaces around the commas are no part of the values.
        parts = [each.strip() for each in str(value).split(",")] if is_list else [_text(value)]
        for part in parts:
            for mistake in _mistakes(name, body, part):
                described = body.get("ConstraintDescription")
                raise ValidationError(
                    f"Parameter {name} failed to satisfy constraint: {described}"
                    if described
                    else f"Parameter '{name}' must {mistake}"
                )
        values[name] = parts if is_list else parts[0]
    unknown = given.keys() - parameters.keys()
    if unknown:
        raise ValidationError(
            f"Parameters: [{', '.join(sorted(unknown))}] do not exist in the template"
        )
    return values


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _mistakes(name: str, body: Object, value: str) -> Iterator[str]:
    allowed = body.get("AllowedValues")
    if allowed and value not in map(_text, allowed):
        yield f"be one of AllowedValues: {', '.join(map(_text, allowed))}"
    if body["Type"] in ("Number", "List<Number>"):
        number = _number(value)
        if number is None:
            yield "be a number"
        elif number < float(body.get("MinValue", number)):
            yield f"be a number not less than {body['MinValue']}"
        elif number > float(body.get("MaxValue", number)):
            yield f"be a number not greater than {body['MaxValue']}"
        return
    pattern = body.get("AllowedPattern")
    if pattern and not _whole(name, pattern, value):
        yield f"match pattern {pattern}"
    if len(value) < int(body.get("MinLength", 0)):
        yield f"contain at least {body['MinLength']} characters"
    if len(value) > int(body.get("MaxLength", len(value))):
        yield f"contain at most {body['MaxLength']} characters"


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _whole(name: str, pattern: str, value: str) -> bool:
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error as error:
        raise ValidationError(
            f"Template format error: Parameter {name} AllowedPattern {pattern}: {error}"
        ) from error


def check_existing(
    template: Object, values: Mapping[str, Value], exists: Callable[[str, str], bool]
) -> None:
    """Refuse ids of things that are not there, in parameters of AWS's own types."""
    for name, body in template.get("Parameters", {}).items():
        kind = body["Type"].removeprefix("List<").removesuffix(">")
        if kind not in _OF_AWS:
            continue
        for value in values[name] if isinstance(values[name], list) else [values[name]]:
            if not exists(kind, value):
                raise ValidationError(
                    f"Parameter validation failed: parameter value {value} for parameter name "
                    f"{name} does not exist"
                )


def raw_parameters(
    template: Object, given: Mapping[str, str], previous: Mapping[str, str]
) -> dict[str, str]:
    """Return the parameters as they were given, to be shown and used again."""
    return {
        name: str(given.get(name, previous.get(name, body.get("Default", ""))))
        for name, body in template.get("Parameters", {}).items()
    }


def ssm_parameters(template: Object) -> list[str]:
    """Return the names of parameters whose values are names in the parameter store."""
    return [
        name
        for name, body in template.get("Parameters", {}).items()
        if body["Type"].startswith(_SSM_PARAMETER)
    ]
