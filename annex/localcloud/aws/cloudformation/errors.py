"""How requests and operations of CloudFormation end when they cannot be carried out."""

from moto.core.exceptions import ServiceException


class ValidationError(ServiceException):
    """A request that CloudFormation refuses at once."""

    code = "ValidationError"


class ChangeSetNotFoundError(ServiceException):
    """A change set of that name is not there."""

    code = "ChangeSetNotFound"


class ResourceError(Exception):
    """A resource could not be created, changed or deleted; the message is the stack's reason."""


class UnknownValueError(Exception):
    """A value refers to something that exists only when the change has been made."""
