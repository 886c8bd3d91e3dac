"""Brings a stack to what its template asks for, or back to what it was."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from megatron_eks.local.aws.cloudformation import schemas
from megatron_eks.local.aws.cloudformation.errors import ResourceError, UnknownValueError
from megatron_eks.local.aws.cloudformation.intrinsics import Made, Resolver
from megatron_eks.local.aws.cloudformation.stacks import KEEP, Resource, Stack, Target
from megatron_eks.local.aws.cloudformation.template import depends_on, in_order, references
from megatron_eks.local.aws.resources.handler import Context, Handler, NotSupportedError
from megatron_eks.local.aws.values import Object

_Result = TypeVar("_Result")

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tools:
    """What an operation needs from outside."""

    context: Callable[[str], Context]
    """By a resource's name."""
    handler: Callable[[str], Handler]
    """By a resource's type; raises ResourceError if there is none."""
    mistakes: Mapping[str, str]
    """What a rule of this project says against a resource, by its name."""
    injected: Callable[[str, str, str], str | None]
    """The error that somebody asked for: by action, name and type."""
    users: Callable[[str], list[str]]
    """Which other stacks import an export."""


@dataclass(frozen=True)
class _Step:
    """What was done to a resource, to be undone if a later one fails."""

    now: Resource
    before: Resource | None
    replaced: bool = False


class Operation:
    """One creation, update, import or deletion."""

    def __init__(self, stack: Stack, resolver: Resolver, tools: Tools) -> None:
        self._stack, self._resolver, self._tools = stack, resolver, tools
        self._steps: list[_Step] = []

    def deploy(
        self, target: Target, verb: str, imports: Mapping[str, str], *, rollback: bool = True
    ) -> bool:
        """Carry out a creation, update or import; return False if it failed."""
        stack = self._stack
        stack.say(f"{verb}_IN_PROGRESS", "User Initiated")
        try:
            wanted = self._resolver.wanted()
            for name in in_order(wanted):
                self._bring(name, wanted[name], imports.get(name))
            outputs = self._outputs(target.template)
            self._check_exports(outputs)
        except (ResourceError, UnknownValueError) as error:
            reason = str(error)
            if not rollback:
                stack.say(f"{verb}_FAILED", reason)
            else:
                self._roll_back(verb, reason)
            return False
        before = stack.target
        stack.target, stack.outputs, stack.imports = target, outputs, self._resolver.imported
        if verb != "CREATE":
            stack.say(f"{verb}_COMPLETE_CLEANUP_IN_PROGRESS")
            self._clean_up(before, wanted)
        stack.say(f"{verb}_COMPLETE")
        return True

    def delete(self) -> bool:
        """Delete everything that is not to be kept; return False if something stands in the way."""
        stack = self._stack
        used = [(name, users) for name in stack.exports if (users := self._tools.users(name))]
        stack.say("DELETE_IN_PROGRESS", "User Initiated")
        if used:
            name, users = used[0]
            stack.say(
                "DELETE_FAILED",
                f"Export {name} cannot be deleted as it is in use by {' and '.join(users)}",
            )
            return False
        failed: list[str] = []
        needed: set[str] = set()
        for each in self._backwards(stack.resources):
            # What could not be deleted still needs these.
            kept = each.name in needed
            if not kept and self._remove(each, keep=each.body.get("DeletionPolicy") in KEEP):
                continue
            needed |= {*references(each.body.get("Properties", {})), *depends_on(each.body)}
            if not kept:
                failed.append(each.name)
        if failed:
            stack.say(
                "DELETE_FAILED",
                f"The following resource(s) failed to delete: [{', '.join(failed)}]. ",
            )
            return False
        stack.say("DELETE_COMPLETE")
        return True

    def _bring(self, name: str, body: Object, imported: str | None) -> None:
        kind = body["Type"]
        before = self._stack.resources.get(name)
        verb = "CREATE" if before is None else "UPDATE"
        physical_id = before.physical_id if before else ""
        try:
            properties = self._properties(kind, body)
            self._judge(name, kind, properties, before)
            if imported is not None:
                self._import(name, body, properties, imported)
            elif before is None:
                self._create(name, body, properties, None)
            elif before.properties == properties:
                self._keep(replace(before, body=body))
            elif self._is_replaced(before, properties):
                self._stack.event(
                    name,
                    kind,
                    physical_id,
                    "UPDATE_IN_PROGRESS",
                    "Requested update requires the creation of a new physical resource; "
                    "hence creating one.",
                )
                self._create(name, body, properties, before)
            else:
                self._update(before, body, properties)
        except (ResourceError, UnknownValueError) as error:
            self._stack.event(name, kind, physical_id, f"{verb}_FAILED", str(error))
            names = f"[{name}]"
            raise ResourceError(
                f"The following resource(s) failed to {verb.lower()}: {names}. {error}"
            ) from error

    def _properties(self, kind: str, body: Object) -> Object:
        resolved = self._resolver.resolve(body.get("Properties", {}))
        return schemas.with_types(self._stack.region, kind, resolved)

    def _judge(self, name: str, kind: str, properties: Object, before: Resource | None) -> None:
        """Refuse what the type's schema or this project's rules refuse."""
        if before and before.kind != kind:
            raise ResourceError(
                "Update of resource type is not permitted. The new template modifies resource "
                f"type of the following resources: [{name}]"
            )
        found = schemas.mistakes(self._stack.region, kind, properties)
        if found:
            raise ResourceError(
                f"Properties validation failed for resource {name} with message: {'; '.join(found)}"
            )
        if name in self._tools.mistakes:
            raise ResourceError(self._tools.mistakes[name])

    def _is_replaced(self, before: Resource, properties: Object) -> bool:
        return any(
            schemas.is_create_only(self._stack.region, before.kind, path)
            for path in schemas.changed_paths(before.properties, properties)
        )

    def _create(self, name: str, body: Object, properties: Object, before: Resource | None) -> None:
        kind, verb = body["Type"], "UPDATE" if before else "CREATE"
        self._stack.event(name, kind, "", f"{verb}_IN_PROGRESS")
        handler, context = self._tools.handler(kind), self._tools.context(name)

        def create() -> Resource:
            physical_id = handler.create(context, properties)
            made = Resource(name, kind, physical_id, properties, body)
            # Before anything else can fail: what has been made must be undone.
            self._steps.append(_Step(made, before, replaced=before is not None))
            self._stack.resources[name] = made
            made.attributes = handler.attributes(context, physical_id, properties)
            return made

        made = self._call("CREATE", name, kind, create)
        self._done(made, f"{verb}_COMPLETE")

    def _update(self, before: Resource, body: Object, properties: Object) -> None:
        name, kind = before.name, before.kind
        self._stack.event(name, kind, before.physical_id, "UPDATE_IN_PROGRESS")
        handler, context = self._tools.handler(kind), self._tools.context(name)
        now = replace(before, properties=properties, body=body)

        def update() -> None:
            # Undone even if it failed half way, but not if it was refused as a whole.
            self._steps.append(_Step(now, before))
            try:
                handler.update(context, before.physical_id, before.properties, properties)
            except NotSupportedError:
                self._steps.pop()
                raise
            now.attributes = handler.attributes(context, before.physical_id, properties)

        self._call("UPDATE", name, kind, update)
        self._done(now, "UPDATE_COMPLETE")

    def _import(self, name: str, body: Object, properties: Object, physical_id: str) -> None:
        kind = body["Type"]
        handler, context = self._tools.handler(kind), self._tools.context(name)
        made = Resource(name, kind, physical_id, properties, body)
        self._stack.event(name, kind, physical_id, "IMPORT_IN_PROGRESS")
        made.attributes = self._call(
            "IMPORT", name, kind, lambda: handler.attributes(context, physical_id, properties)
        )
        self._done(made, "IMPORT_COMPLETE")

    def _keep(self, resource: Resource) -> None:
        self._stack.resources[resource.name] = resource
        self._resolver.made[resource.name] = Made(resource.physical_id, resource.attributes)

    def _done(self, resource: Resource, status: str) -> None:
        resource.status = status
        self._keep(resource)
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

    def _outputs(self, template: Object) -> list[Object]:
        outputs: list[Object] = []
        for key, body in template.get("Outputs", {}).items():
            if "Condition" in body and not self._resolver.condition(body["Condition"]):
                continue
            output = {"OutputKey": key, "OutputValue": str(self._resolver.resolve(body["Value"]))}
            if "Description" in body:
                output["Description"] = body["Description"]
            if "Export" in body:
                output["ExportName"] = self._resolver.resolve(body["Export"]["Name"])
            outputs.append(output)
        return outputs

    def _check_exports(self, outputs: Iterable[Object]) -> None:
        now = {each["ExportName"]: each["OutputValue"] for each in outputs if "ExportName" in each}
        for name, value in self._stack.exports.items():
            if now.get(name) != value and (users := self._tools.users(name)):
                verb = "updated" if name in now else "deleted"
                raise ResourceError(
                    f"Export {name} cannot be {verb} as it is in use by {' and '.join(users)}"
                )
        for name in now.keys() - self._stack.exports.keys():
            if name in self._resolver.exports:
                raise ResourceError(f"Export with name {name} is already exported by another stack")

    def _roll_back(self, verb: str, reason: str) -> None:
        stack = self._stack
        prefix = "" if verb == "CREATE" else f"{verb}_"
        stack.say(f"{prefix}ROLLBACK_IN_PROGRESS", f"{reason} Rollback requested by user.")
        failed = [step.now.name for step in reversed(self._steps) if not self._undo(step)]
        if failed:
            stack.say(
                f"{prefix}ROLLBACK_FAILED",
                f"The following resource(s) failed to roll back: [{', '.join(failed)}]. ",
            )
        else:
            stack.say(f"{prefix}ROLLBACK_COMPLETE")

    def _undo(self, step: _Step) -> bool:
        name = step.now.name
        if step.before is None or step.replaced:
            if not self._remove(step.now, keep=step.now.body.get("DeletionPolicy") == "Retain"):
                return False
            if step.before is not None:
                self._keep(step.before)
            return True
        handler, context = self._tools.handler(step.now.kind), self._tools.context(name)
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

    def _clean_up(self, before: Target | None, wanted: Mapping[str, Object]) -> None:
        """Delete what was replaced or is no longer asked for; a failure leaves it behind."""
        old = {
            step.before.name: step.before for step in self._steps if step.replaced and step.before
        }
        gone = {name: each for name, each in self._stack.resources.items() if name not in wanted}
        for each in self._backwards({**old, **gone}) if before else ():
            if each.name in gone:
                policy = each.body.get("DeletionPolicy")
                self._remove(each, keep=policy in KEEP)
                self._stack.resources.pop(each.name, None)
            else:
                present = self._stack.resources[each.name]
                self._remove(each, keep=each.body.get("UpdateReplacePolicy") == "Retain")
                self._stack.resources[each.name] = present

    def _remove(self, resource: Resource, *, keep: bool) -> bool:
        stack, name, kind = self._stack, resource.name, resource.kind
        if keep:
            stack.event(name, kind, resource.physical_id, "DELETE_SKIPPED")
            stack.resources.pop(name, None)
            return True
        stack.event(name, kind, resource.physical_id, "DELETE_IN_PROGRESS")
        handler, context = self._tools.handler(kind), self._tools.context(name)
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
            resource.status, resource.reason = "DELETE_FAILED", str(error)
            stack.event(name, kind, resource.physical_id, "DELETE_FAILED", str(error))
            return False
        stack.event(name, kind, resource.physical_id, "DELETE_COMPLETE")
        stack.resources.pop(name, None)
        return True

    @staticmethod
    def _backwards(resources: Mapping[str, Resource]) -> list[Resource]:
        order = in_order({name: each.body for name, each in resources.items()})
        return [resources[name] for name in reversed(order)]


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
