"""Brings a stack to what its template asks for, or back to what it was."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from moto.core.exceptions import ServiceException

from megatron_eks.localcloud.aws.cloudformation import schemas
from megatron_eks.localcloud.aws.cloudformation.errors import ResourceError, UnknownValueError
from megatron_eks.localcloud.aws.cloudformation.intrinsics import Resolver
from megatron_eks.localcloud.aws.cloudformation.stacks import KEEP, Resource, Stack, Target
from megatron_eks.localcloud.aws.cloudformation.template import depends_on, in_order, references
from megatron_eks.localcloud.aws.cloudformation.work import Tools, Work
from megatron_eks.localcloud.aws.values import Object

_LOG = logging.getLogger(__name__)


class Operation:
    """One creation, update, import or deletion."""

    def __init__(self, stack: Stack, resolver: Resolver, tools: Tools) -> None:
        self._stack, self._resolver, self._tools = stack, resolver, tools
        self._work = Work(stack, resolver, tools)

    def deploy(self, target: Target, verb: str, imports: Mapping[str, str]) -> bool:
        """Carry out a creation, update or import; return False if it failed."""
        stack = self._stack
        stack.say(f"{verb}_IN_PROGRESS", "User Initiated")
        try:
            wanted, outputs = self._carry_out(target, imports)
        except Exception as error:  # noqa: BLE001 -- no stack may stay in progress for ever
            if not isinstance(error, ResourceError | UnknownValueError | ServiceException):
                _LOG.exception("%s of %s failed", verb, stack.name)
            self._roll_back(verb, str(error))
            return False
        before = stack.target
        stack.target, stack.outputs, stack.imports = target, outputs, self._resolver.imported
        if verb != "CREATE":
            stack.say(f"{verb}_COMPLETE_CLEANUP_IN_PROGRESS")
            self._clean_up(before, wanted)
        stack.say(f"{verb}_COMPLETE")
        return True

    def _carry_out(
        self, target: Target, imports: Mapping[str, str]
    ) -> tuple[dict[str, Object], list[Object]]:
        wanted = self._resolver.wanted()
        for name in in_order(wanted):
            self._bring(name, wanted[name], imports.get(name))
        outputs = self._outputs(target.template)
        self._check_exports(outputs)
        return wanted, outputs

    def delete(self) -> bool:
        """Delete everything that is not to be kept; return False if something stands in the way."""
        stack = self._stack
        used = [(name, users) for name in stack.exports if (users := self._tools.users(name))]
        if used:
            name, users = used[0]
            # Its status stays what it was; the reason alone tells (aws-cdk#604).
            found = f"Export {name} cannot be deleted as it is in use by {' and '.join(users)}"
            stack.say(stack.status, found)
            return False
        stack.say("DELETE_IN_PROGRESS", "User Initiated")
        failed: list[str] = []
        needed: set[str] = set()
        for each in self._backwards(stack.resources):
            # What could not be deleted still needs these.
            kept = each.name in needed
            if not kept and self._work.remove(each, keep=each.body.get("DeletionPolicy") in KEEP):
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
            properties = self._resolver.resolve(body.get("Properties", {}))
            self._judge(name, kind, properties, before)
            if imported is not None:
                self._work.take_over(name, body, properties, imported)
            elif before is None:
                self._work.create(name, body, properties, None)
            elif before.properties == properties:
                self._work.keep(replace(before, body=body))
            elif self._is_replaced(before, properties):
                self._stack.event(
                    name,
                    kind,
                    physical_id,
                    "UPDATE_IN_PROGRESS",
                    "Requested update requires the creation of a new physical resource; "
                    "hence creating one.",
                )
                self._work.create(name, body, properties, before)
            else:
                self._work.update(before, body, properties)
        except (ResourceError, UnknownValueError) as error:
            self._stack.event(name, kind, physical_id, f"{verb}_FAILED", str(error))
            names = f"[{name}]"
            raise ResourceError(
                f"The following resource(s) failed to {verb.lower()}: {names}. {error}"
            ) from error

    def _judge(self, name: str, kind: str, properties: Object, before: Resource | None) -> None:
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

    def _is_replaced(self, before: Resource, properties: Object) -> bool:
        return any(
            schemas.is_create_only(self._stack.region, before.kind, path)
            for path in schemas.changed_paths(before.properties, properties)
        )

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
        failed = [step for step in reversed(self._work.steps) if not self._work.undo(step)]
        if failed:
            names = ", ".join(step.now.name for step in failed)
            stack.say(
                f"{prefix}ROLLBACK_FAILED",
                f"The following resource(s) failed to roll back: [{names}]. ",
            )
        else:
            stack.say(f"{prefix}ROLLBACK_COMPLETE")

    def _clean_up(self, before: Target | None, wanted: Mapping[str, Object]) -> None:
        """Delete what was replaced or is no longer asked for; a failure leaves it behind."""
        old = {
            step.before.name: step.before
            for step in self._work.steps
            if step.replaced and step.before
        }
        gone = {name: each for name, each in self._stack.resources.items() if name not in wanted}
        for each in self._backwards({**old, **gone}) if before else ():
            if each.name in gone:
                policy = each.body.get("DeletionPolicy")
                self._work.remove(each, keep=policy in KEEP)
                self._stack.resources.pop(each.name, None)
            else:
                present = self._stack.resources[each.name]
                self._work.remove(each, keep=each.body.get("UpdateReplacePolicy") == "Retain")
                self._stack.resources[each.name] = present

    @staticmethod
    def _backwards(resources: Mapping[str, Resource]) -> list[Resource]:
        order = in_order({name: each.body for name, each in resources.items()})
        return [resources[name] for name in reversed(order)]
