"""What a resource type can do, and what it is given to do it."""

import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from megatron_eks.local.aws.clients import Clients
from megatron_eks.local.aws.values import Object, Value

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


class Handler:
    """A resource type. Properties come without functions and in the schema's types."""

    kind: str

    def create(self, context: Context, properties: Object) -> str:
        """Make the resource and return its physical id."""
        raise NotImplementedError

    def update(self, context: Context, physical_id: str, old: Object, new: Object) -> None:
        """Change the resource in place."""
        changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        raise NotSupportedError(
            f"local AWS cannot change {', '.join(changed)} of {self.kind} {physical_id} in place "
            f"(resource {context.name})"
        )

    def delete(self, context: Context, physical_id: str, properties: Object) -> None:
        """Remove the resource."""
        raise NotImplementedError

    def exists(self, context: Context, physical_id: str) -> bool:
        """Say whether it is there; asked only for what a template names, and may be taken over."""
        del context, physical_id
        return False

    def attributes(
        self, context: Context, physical_id: str, properties: Object
    ) -> Mapping[str, Value]:
        """Return what Fn::GetAtt gives. Raises botocore's error if the resource is not there."""
        del context, physical_id, properties
        return {}


class NotSupportedError(Exception):
    """An update that is refused before anything has changed."""
