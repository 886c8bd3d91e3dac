"""The stacks of a region, and what is asked of them."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from megatron_eks.localcloud.aws.clients import Clients
from megatron_eks.localcloud.aws.cloudformation.changes import NO_CHANGES, ChangeSet, changes
from megatron_eks.localcloud.aws.cloudformation.engine import Operation
from megatron_eks.localcloud.aws.cloudformation.errors import (
    ChangeSetNotFoundError,
    ResourceError,
    ValidationError,
)
from megatron_eks.localcloud.aws.cloudformation.failures import Failures
from megatron_eks.localcloud.aws.cloudformation.intrinsics import Resolver
from megatron_eks.localcloud.aws.cloudformation.parameters import parameter_values, raw_parameters
from megatron_eks.localcloud.aws.cloudformation.stacks import Stack, Target, stack_arn
from megatron_eks.localcloud.aws.cloudformation.taking_over import existing as existing_resources
from megatron_eks.localcloud.aws.cloudformation.template import parse
from megatron_eks.localcloud.aws.cloudformation.work import Tools
from megatron_eks.localcloud.aws.resources.handler import Context
from megatron_eks.localcloud.aws.services.operation import ServiceError
from megatron_eks.localcloud.aws.values import ACCOUNT, PARTITION, Object

_BUSY = "_IN_PROGRESS"
# What is left of these can only be deleted.
_DEAD = ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED")


class Region:
    """Everything that CloudFormation knows of one region."""

    def __init__(self, name: str, clients: Clients, failures: Failures) -> None:
        self._name, self.clients, self._failures = name, clients, failures
        self.stacks: list[Stack] = []
        self._change_sets: dict[str, list[ChangeSet]] = {}
        # An operation is carried out by the request that asks for it, one at a time.
        self._lock = threading.Lock()

    def find(self, name: str, *, deleted: bool = False) -> Stack:
        """Return a stack by name or id; a deleted one only by id. Raises ValidationError."""
        for stack in reversed(self.stacks):
            gone = stack.deleted is not None
            if (stack.name == name and not gone) or (stack.id == name and (deleted or not gone)):
                return stack
        raise ValidationError(f"Stack with id {name} does not exist")

    def living(self) -> list[Stack]:
        """Return the stacks that are not deleted."""
        return [stack for stack in self.stacks if stack.deleted is None]

    def users(self, export: str) -> list[str]:
        """Return the names of the stacks that import an export."""
        return [stack.name for stack in self.living() if export in stack.imports]

    def change_sets(self, stack: Stack) -> list[ChangeSet]:
        """Return the change sets of a stack."""
        return self._change_sets.setdefault(stack.id, [])

    def find_change_set(self, name: str, stack_name: str | None) -> tuple[Stack, ChangeSet]:
        """Return a change set by id, or by name and stack. Raises ChangeSetNotFoundError."""
        for stack in reversed(self.stacks):
            for each in reversed(self.change_sets(stack)):
                if each.id == name or (each.name == name and stack_name in (stack.name, stack.id)):
                    return stack, each
        raise ChangeSetNotFoundError(f"ChangeSet [{name}] does not exist")

    def create_change_set(self, given: Object, body: str | None) -> tuple[Stack, ChangeSet]:
        """Compare a template with a stack; a stack that is not there is announced.

        Takes the request, and its template, None for the one that the stack has.
        """
        name, stack_name = given["ChangeSetName"], given["StackName"]
        kind = given.get("ChangeSetType", "UPDATE")
        if kind == "IMPORT":
            raise ValidationError("local AWS cannot import resources by their identifiers")
        with self._lock:
            existing = [each for each in self.living() if stack_name in (each.name, each.id)]
            if kind == "CREATE":
                if existing and existing[0].status != "REVIEW_IN_PROGRESS":
                    raise ServiceError(
                        "AlreadyExistsException", f"Stack [{stack_name}] already exists"
                    )
                stack = existing[0] if existing else Stack(stack_name, self._name)
            else:
                stack = self.find(stack_name)
                if stack.status.endswith(_BUSY) or stack.status in _DEAD:
                    raise ValidationError(
                        f"Stack:{stack.id} is in {stack.status} state and can not be updated."
                    )
            before = stack.target
            target, resolver = self._read(stack, given, body)
            imports: dict[str, str] = {}
            if given.get("ImportExistingResources"):
                others = [each for each in self.living() if each is not stack]
                wanted = resolver.wanted()
                imports = existing_resources(stack, wanted, others, self._tools(stack))
            try:
                found = changes(stack, resolver, imports)
            except ResourceError as error:
                raise ValidationError(str(error)) from error
            same = (
                kind == "UPDATE"
                and not found
                and before is not None
                and before.tags == target.tags
                and before.template.get("Outputs") == target.template.get("Outputs")
            )
            number = stack_arn(self._name, name, "changeSet")
            reason = NO_CHANGES if same else None
            change_set = ChangeSet(name, number, kind, target, found, imports, reason)
            if stack not in self.stacks:
                self.stacks.append(stack)
                stack.say("REVIEW_IN_PROGRESS", "User Initiated")
            self.change_sets(stack).append(change_set)
            return stack, change_set

    def execute_change_set(self, name: str, stack_name: str | None) -> None:
        """Carry out a change set. The stack tells how it ended."""
        with self._lock:
            stack, change_set = self.find_change_set(name, stack_name)
            if change_set.execution != "AVAILABLE":
                found = f"cannot be executed in its current status of [{change_set.status}]"
                raise ServiceError("InvalidChangeSetStatus", f"ChangeSet [{change_set.id}] {found}")
            if change_set.kind != "CREATE":
                stack.updated = datetime.now(tz=UTC)
            target = change_set.target
            operation = Operation(stack, self._resolver(stack, target), self._tools(stack))
            done = operation.deploy(target, change_set.kind, change_set.imports)
            change_set.executed = "EXECUTE_COMPLETE" if done else "EXECUTE_FAILED"
            # AWS drops the others, which compare with a stack that is no more.
            self._change_sets[stack.id] = [change_set]

    def delete_change_set(self, name: str, stack_name: str | None) -> None:
        """Forget a change set; one that is not there is no error."""
        try:
            stack, change_set = self.find_change_set(name, stack_name)
        except ChangeSetNotFoundError:
            return
        self.change_sets(stack).remove(change_set)

    def delete(self, name: str) -> None:
        """Delete a stack; one that is not there is no error."""
        with self._lock:
            try:
                stack = self.find(name)
            except ValidationError:
                return
            resolver = Resolver({"Resources": {}}, {}, {})
            if Operation(stack, resolver, self._tools(stack)).delete():
                stack.deleted = datetime.now(tz=UTC)

    def _read(self, stack: Stack, given: Object, body: str | None) -> tuple[Target, Resolver]:
        before = stack.target
        if body is None:
            body = before.body if before else ""
        template = parse(body)
        asked = {
            each["ParameterKey"]: each["ParameterValue"]
            for each in given.get("Parameters") or []
            if not each.get("UsePreviousValue")
        }
        raw = raw_parameters(template, asked, before.raw_parameters if before else {})
        parameters = parameter_values(template, raw, self.clients)
        tags = given.get("Tags")
        if tags is None:
            tags = before.tags if before else []
        target = Target(template, body, raw, parameters, tags)
        resolver = self._resolver(stack, target)
        resolver.check_rules()
        return target, resolver

    def _resolver(self, stack: Stack, target: Target) -> Resolver:
        pseudo = {
            "AWS::AccountId": ACCOUNT,
            "AWS::NotificationARNs": [],
            "AWS::Partition": PARTITION,
            "AWS::Region": self._name,
            "AWS::StackId": stack.id,
            "AWS::StackName": stack.name,
            "AWS::URLSuffix": "amazonaws.com",
        }
        others = [each for each in self.living() if each is not stack]
        exports = {name: value for each in others for name, value in each.exports.items()}
        return Resolver(target.template, {**target.parameters, **pseudo}, exports)

    def _tools(self, stack: Stack) -> Tools:
        def context(name: str) -> Context:
            return Context(self.clients, self._name, stack.name, name)

        return Tools(context, self._failures.take, self.users)


class Regions:
    """CloudFormation of every region, by its name; each begins when it is first asked for."""

    def __init__(self, clients: Callable[[str], Clients]) -> None:
        self._make_clients = clients
        self._regions: dict[str, Region] = {}
        self._lock = threading.Lock()
        self.failures = Failures()

    def region(self, name: str) -> Region:
        """Return a region."""
        with self._lock:
            if name not in self._regions:
                self._regions[name] = Region(name, self._make_clients(name), self.failures)
            return self._regions[name]

    def clients(self, name: str) -> Clients:
        """Return the clients of a region."""
        return self.region(name).clients
