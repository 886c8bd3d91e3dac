"""The parameters of a template, and what they are."""

from collections.abc import Mapping

from megatron_eks.localcloud.aws.clients import Clients
from megatron_eks.localcloud.aws.cloudformation.errors import ValidationError
from megatron_eks.localcloud.aws.values import Object, Value

_SSM_PARAMETER = "AWS::SSM::Parameter::Value<"


def raw_parameters(
    template: Object, given: Mapping[str, str], previous: Mapping[str, str]
) -> dict[str, str]:
    """Return the parameters as they were given, to be shown and used again."""
    parameters = template.get("Parameters", {})
    defaults = {name: body["Default"] for name, body in parameters.items() if "Default" in body}
    known = {**defaults, **previous, **given}
    return {name: known[name] for name in parameters}


def parameter_values(
    template: Object, raw: Mapping[str, str], clients: Clients
) -> dict[str, Value]:
    """Return the value of each parameter; those of SSM type are looked up in their store."""
    kinds = {name: body["Type"] for name, body in template.get("Parameters", {}).items()}
    wanted = [raw[name] for name, kind in kinds.items() if kind.startswith(_SSM_PARAMETER)]
    found = clients("ssm").get_parameters(Names=wanted)["Parameters"] if wanted else []
    stored = {each["Name"]: each["Value"] for each in found}
    values: dict[str, Value] = {}
    for name, kind in kinds.items():
        value = raw[name]
        if kind.startswith(_SSM_PARAMETER):
            if value not in stored:
                raise ValidationError(
                    f"Unable to fetch parameters [{value}] from parameter store for this account."
                )
            values[name] = stored[value]
        else:
            values[name] = value.split(",") if kind == "CommaDelimitedList" else value
    return values
