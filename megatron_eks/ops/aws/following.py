"""Waiting for CloudFormation: progress in few lines, and why it failed."""

from megatron_eks.config.codes import Code
from megatron_eks.ops.aws.causes import STACKS, first_of
from megatron_eks.ops.aws.stacks import Event, Stack, Stacks
from megatron_eks.ops.console import Console, duration
from megatron_eks.ops.failure import Failure

_POLL_SECONDS = 5
_REPORT_SECONDS = 30
# An EKS cluster takes 10 minutes, a file system 10, node groups 5 each; CloudFormation itself gives
# up after hours.
_LIMIT_SECONDS = 3 * 3600
_SHOWN = 4
_GOOD = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"})


def carry_out(stacks: Stacks, name: str, change_set: str, console: Console) -> bool:
    """Execute a change set to its end; False where the stack has changed since it was made."""
    before, started = stacks.last_event(name), console.clock.now()
    if not stacks.execute(name, change_set):
        return False
    stack = follow(stacks, name, console, before)
    if stack is None:
        remedy = "run `meks deploy` again: what is done stays done"
        raise Failure(Code.STACK_FAILED, "somebody deleted it", remedy, where=name)
    if stack.status not in _GOOD:
        raise failed(stacks, stack, before)
    took = duration((console.clock.now() - started).total_seconds())
    console.say(f"{name}: {stack.status} after {took}")
    return True


def follow(stacks: Stacks, name: str, console: Console, after: str = "") -> Stack | None:
    """Wait until CloudFormation has done with a stack; None where it is gone.

    `after` is the last event of what came before.
    """
    started = reported = console.clock.now().timestamp()
    while True:
        stack = stacks.find(name)
        if stack is None or not stack.busy:
            return stack
        now = console.clock.now().timestamp()
        if now - started > _LIMIT_SECONDS:
            found = f"{name} is {stack.status} for {duration(now - started)}"
            raise Failure(Code.WAITED_TOO_LONG, found, "look at its events in the AWS console")
        if now - reported >= _REPORT_SECONDS:
            reported = now
            console.say(_progress(stacks.events(name, after), name, now - started))
        console.clock.sleep(_POLL_SECONDS)


def failed(stacks: Stacks, stack: Stack, after: str = "") -> Failure:
    """Say why CloudFormation gave up, in the words of the resource that failed first."""
    reasons = [event for event in stacks.events(stack.name, after) if event.failed]
    causes = [event for event in reasons if event.kind != "AWS::CloudFormation::Stack"] or reasons
    words = [f"{event.logical_id} ({event.kind}): {event.reason}" for event in causes[:_SHOWN]]
    text = "; ".join(words) or stack.reason or "no resource says why"
    remedy = first_of(STACKS, text).remedy
    if stack.status == "UPDATE_ROLLBACK_FAILED":
        remedy += f"; first: aws cloudformation continue-update-rollback --stack-name {stack.name}"
    return Failure(Code.STACK_FAILED, f"{stack.status}: {text}", remedy, where=stack.name)


def _progress(events: list[Event], name: str, seconds: float) -> str:
    state: dict[str, str] = {}
    for event in events:
        if event.kind != "AWS::CloudFormation::Stack":
            state[event.logical_id] = event.status
    done = sum(status.endswith("_COMPLETE") for status in state.values())
    busy = [name for name, status in state.items() if status.endswith("_IN_PROGRESS")]
    shown = ", ".join(busy[:2]) + (f" and {len(busy) - 2} more" if busy[2:] else "")
    at = f", at {shown}" if busy else ""
    return f"  {name}: {duration(seconds)}, {done} resources done{at}"
