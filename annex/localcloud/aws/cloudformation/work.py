"""Makes, changes and removes single resources of a stack, and remembers how to undo it."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from megatron_eks.localcloud.aws.cloudformation.errors import ResourceError, UnknownValueError
from megatron_eks.localcloud.aws.cloudformation.intrinsics import Made, Resolver
from megatron_eks.localcloud.aws.cloudformation.stacks import Resource, Stack
from megatron_eks.localcloud.aws.resources.handler import Context, NotSupportedError
from megatron_eks.localcloud.aws.resources.table import handler_of
from megatron_eks.localcloud.aws.values import Object, Value

_Result = TypeVar("_Result")

_LOG = logging.getLogger(__name__)

_SECRET = re.compile(r"\{\{resolve:secretsmanager:([^:}]+):SecretString\}\}")


@dataclass(frozen=True)
class Tools:
    """What an operation needs from outside."""

    context: Callable[[str], Context]
    """By a resource's name."""
    injected: Callable[[str, str, str], str | None]
    """The error that somebody asked for: by action, name and type."""
    users: Callable[[str], list[str]]
    """Which other stacks import an export."""


@dataclass(frozen=True)
class Step:
    """What was done to a resource, to be undone if a later one fails."""

    now: Resource
    before: Resource | None
    replaced: bool = False


class Work:
    """What one operation does to the resources of its stack."""

    def __init__(self, stack: Stack, resolver: Resolver, tools: Tools) -> None:
        self._stack, self._resolver, self._tools = stack, resolver, tools
        self.steps: list[Step] = []

    def create(self, name: str, body: Object, properties: Object, before: Resource | None) -> None:
        """Make a resource, in the place of another one if there was one."""
        kind, verb = body["Type"], "UPDATE" if before else "CREATE"
        self._stack.event(name, kind, "", f"{verb}_IN_PROGRESS")
        handler = handler_of(kind)
        made: list[Resource] = []

        def note(physical_id: str) -> None:
            if not made:
                made.append(
                    Resource(name, kind, physical_id, properties, body, status="CREATE_FAILED")
                )
                self.steps.append(Step(made[0], before, replaced=before is not None))
                self._stack.resources[name] = made[0]

        context = replace(self._tools.context(name), note=note)

        def create() -> None:
            physical_id = handler.create(context, _with_secrets(properties, context))
            note(physical_id)
            made[0].attributes = handler.attributes(context, physical_id, properties)
            made[0].status = f"{verb}_COMPLETE"

        self._call("CREATE", name, kind, create)
        self._done(made[0], f"{verb}_COMPLETE")

    def update(self, before: Resource, body: Object, properties: Object) -> None:
        """Change a resource in place."""
        name, kind = before.name, before.kind
        self._stack.event(name, kind, before.physical_id, "UPDATE_IN_PROGRESS")
        handler, context = handler_of(kind), self._tools.context(name)
        now = replace(before, properties=properties, body=body)

        def update() -> None:
            # Undone even if it failed half way, but not if it was refused as a whole.
            self.steps.append(Step(now, before))
            try:
                old, new = (_with_secrets(x, context) for x in (before.properties, properties))
                handler.update(context, before.physical_id, old, new)
            except NotSupportedError:
                self.steps.pop()
                raise
            now.attributes = handler.attributes(context, before.physical_id, properties)

        self._call("UPDATE", name, kind, update)
        self._done(now, "UPDATE_COMPLETE")

    def take_over(self, name: str, body: Object, properties: Object, physical_id: str) -> None:
        """Bring a resource that exists into the stack."""
        kind = body["Type"]
        handler, context = handler_of(kind), self._tools.context(name)
        made = Resource(name, kind, physical_id, properties, body)
        self._stack.event(name, kind, physical_id, "IMPORT_IN_PROGRESS")
        made.attributes = self._call(
            "IMPORT", name, kind, lambda: handler.attributes(context, physical_id, properties)
        )
        self._done(made, "IMPORT_COMPLETE")

    def keep(self, resource: Resource) -> None:
        """Leave a resource as it is, and let others refer to it."""
        self._stack.resources[resource.name] = resource
        self._resolver.made[resource.name] = Made(resource.physical_id, resource.attributes)

    def _done(self, resource: Resource, status: str) -> None:
        resource.status = status
        self.keep(resource)
        self._stack.event(resource.name, resource.kind, resource.physical_id, status)

    def _call(self, action: str, name: str, kind: str, call: Callable[[], _Result]) -> _Result:
        error = self._tools.injected(action, name, kind)
        if error is not None:
            raise ResourceError(error)
        try:
            return call()
        except ClientError as refusal:
            raise ResourceError(_in_words(refusal)) from refusal
        except (BotoCoreError, NotSupportedError) as refusal:
            raise ResourceError(f'Resource handler returned message: "{refusal}"') from refusal
        except (ResourceError, UnknownValueError):
            raise
        except Exception as error:
            # A mistake of ours must not leave a stack in progress for ever.
            _LOG.exception("%s of %s failed", action, name)
            raise ResourceError(f"Internal failure of local AWS: {error!r}") from error

    def undo(self, step: Step) -> bool:
        """Bring a resource back to what it was; return False if that failed."""
        name = step.now.name
        if step.before is None or step.replaced:
            if not self.remove(step.now, keep=step.now.body.get("DeletionPolicy") == "Retain"):
                return False
            if step.before is not None:
                self.keep(step.before)
            return True
        handler, context = handler_of(step.now.kind), self._tools.context(name)
        before, now = step.before, step.now
        try:
            self._call(
                "ROLLBACK",
                name,
                now.kind,
                lambda: handler.update(context, now.physical_id, now.properties, before.properties),
            )
        except ResourceError as error:
            self._stack.event(name, now.kind, now.physical_id, "UPDATE_FAILED", str(error))
            return False
        self._done(before, "UPDATE_COMPLETE")
        return True

    def remove(self, resource: Resource, *, keep: bool) -> bool:
        """Delete a resource, or let go of it; return False if something stands in the way."""
        stack, name, kind = self._stack, resource.name, resource.kind
        if keep:
            stack.event(name, kind, resource.physical_id, "DELETE_SKIPPED")
            stack.resources.pop(name, None)
            return True
        stack.event(name, kind, resource.physical_id, "DELETE_IN_PROGRESS")
        handler, context = handler_of(kind), self._tools.context(name)
        try:
            self._call(
                "DELETE",
                name,
                kind,
                lambda: _if_there(
                    lambda: handler.delete(context, resource.physical_id, resource.properties)
                ),
            )
        except ResourceError as error:
            resource.status = "DELETE_FAILED"
            stack.event(name, kind, resource.physical_id, "DELETE_FAILED", str(error))
            return False
        stack.event(name, kind, resource.physical_id, "DELETE_COMPLETE")
        stack.resources.pop(name, None)
        return True


def _if_there(delete: Callable[[], None]) -> None:
    """Delete what may be gone already, by another hand."""
    try:
        delete()
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if not any(word in code for word in ("NotFound", "NoSuch", "not-found")):
            raise


def _in_words(error: ClientError) -> str:
    """Write a service's refusal as CloudFormation does."""
    response = error.response
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    details = response.get("Error", {})
    return (
        f'Resource handler returned message: "{details.get("Message", error)} '
        f'(Operation: {error.operation_name}, Status Code: {status})" '
        f"(HandlerErrorCode: {details.get('Code', 'GeneralServiceException')})"
    )


def _with_secrets(value: Value, context: Context) -> Value:
    """Put in what dynamic references name; the stack and its events keep the references."""
    if isinstance(value, dict):
        return {key: _with_secrets(each, context) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_secrets(each, context) for each in value]
    if not isinstance(value, str):
        return value

    def read(match: re.Match[str]) -> str:
        secrets = context.clients("secretsmanager")
        return str(secrets.get_secret_value(SecretId=match[1])["SecretString"])

    return _SECRET.sub(read, value)
