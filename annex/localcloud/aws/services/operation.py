"""What every added operation of a service needs: its parameters, and errors of AWS's names."""

import uuid
from datetime import UTC, datetime

from moto.core.exceptions import ServiceException
from moto.core.responses import BaseResponse

from megatron_eks.localcloud.aws.values import Object, Value


class ServiceError(ServiceException):
    """An error by the code that a service has for it."""


class NotFoundError(ServiceException):
    """Something that a request names is not there."""

    code = "ResourceNotFoundException"


class InUseError(ServiceException):
    """Something is there already, or still used."""

    code = "ResourceInUseException"


class InvalidParameterError(ServiceException):
    """A parameter that the service refuses."""

    code = "InvalidParameterException"


class InvalidRequestError(ServiceException):
    """A request that the state of things forbids."""

    code = "InvalidRequestException"


def parameters(response: BaseResponse) -> Object:
    """Return the parameters of a request by the names that boto3 gives them."""
    response.parse_parameters(response.normalized_request)
    return dict(response.params)


def kept(owner: Value, name: str) -> Object:
    """Return a mapping of ours on an object of moto's, which lives and dies with it."""
    # Not `vars`, whose type is that of a class too.
    found: Object = owner.__dict__.setdefault(f"local_aws_{name}", {})
    return found


def found(owner: Value, name: str, key: str, missing: Exception) -> Object:
    """Return one of the things that are kept on an object. Raises `missing` if it is not there."""
    try:
        thing: Object = kept(owner, name)[key]
    except KeyError:
        raise missing from None
    return thing


def update_record(kind: str, changed: Object) -> Object:
    """Describe an update of EKS, which is over when it is told."""
    return {
        "id": str(uuid.uuid4()),
        "status": "Successful",
        "type": kind,
        "params": [{"type": name, "value": str(value)} for name, value in changed.items()],
        "createdAt": datetime.now(tz=UTC),
        "errors": [],
    }
