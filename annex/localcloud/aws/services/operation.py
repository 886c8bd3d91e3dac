"""What every added operation of a service needs: its parameters, and errors of AWS's names."""

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from moto.core.exceptions import ServiceException
from moto.core.responses import BaseResponse

from megatron_eks.localcloud.aws.values import Object, Value

if TYPE_CHECKING:
    from megatron_eks.localcloud.aws.cloudformation.region import Regions

NOT_FOUND, IN_USE = "ResourceNotFoundException", "ResourceInUseException"


class ServiceError(ServiceException):
    """An error by the code that a service has for it."""


class InvalidParameterError(ServiceException):
    """A parameter that the service refuses."""

    code = "InvalidParameterException"


class Regional(BaseResponse):
    """A service that asks others of its region."""

    regions: "ClassVar[Regions]"
    """Set once, when the server starts."""

    def client(self, service: str) -> Value:
        """Return a client of this region."""
        return self.regions.clients(self.region)(service)


def parameters(response: BaseResponse) -> Object:
    """Return the parameters of a request by the names that boto3 gives them."""
    response.parse_parameters(response.normalized_request)
    return dict(response.params)


def kept(owner: Value, name: str) -> Object:
    """Return a mapping of ours on an object of moto's, which lives and dies with it."""
    # Not `vars`, whose type is that of a class too.
    found: Object = owner.__dict__.setdefault(f"local_aws_{name}", {})
    return found


def found(owner: Value, name: str, key: str, code: str = NOT_FOUND) -> Object:
    """Return one of the things that are kept on an object. Raises ServiceError if it is gone."""
    try:
        thing: Object = kept(owner, name)[key]
    except KeyError:
        raise ServiceError(code, f"{key} does not exist") from None
    return thing


def taken(owner: Value, name: str, key: str, code: str = NOT_FOUND) -> Object:
    """Return one of the things that are kept on an object, which forgets it."""
    thing = found(owner, name, key, code)
    del kept(owner, name)[key]
    return thing


def changed(thing: Object, given: Object, *names: str) -> Object:
    """Return a thing that has taken on those of the named members that are given."""
    thing.update({name: given[name] for name in names if name in given})
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
