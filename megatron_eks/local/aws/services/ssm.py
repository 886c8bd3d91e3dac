"""The parameter store's own limits on values, which moto does not know."""

import re

from moto.core.responses import ActionResult
from moto.ssm.responses import SimpleSystemManagerResponse

from megatron_eks.local.aws.services.operation import ServiceError, parameters

# Systems Manager API, PutParameter, "Value" and "Tier".
_LARGEST = {"Standard": 4096, "Advanced": 8192, "Intelligent-Tiering": 8192}


class SsmApi(SimpleSystemManagerResponse):
    """The parameter store."""

    def put_parameter(self) -> ActionResult:
        """PutParameter."""
        given = parameters(self)
        tier, value = given.get("Tier") or "Standard", given["Value"]
        if len(value.encode()) > _LARGEST.get(tier, len(value)):
            raise ServiceError(
                "ValidationException",
                f"{tier} tier parameters support a maximum parameter value of {_LARGEST[tier]} "
                "characters.",
            )
        pattern = given.get("AllowedPattern")
        if pattern and not re.search(pattern, value):
            raise ServiceError(
                "ParameterPatternMismatchException",
                f"Parameter value, cannot be validated against allowedPattern: {pattern}",
            )
        return super().put_parameter()
