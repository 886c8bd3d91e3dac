"""`meks deploy`: the stacks of a cluster, each change looked at before it is made."""

import uuid
from collections.abc import Mapping, Sequence

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import ConfigError
from megatron_eks.folders import refuse_folder_of_another
from megatron_eks.ops.aws import following
from megatron_eks.ops.aws.cdk import Cdk, is_bootstrapped
from megatron_eks.ops.aws.stacks import Template
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.cluster import outputs, retained
from megatron_eks.ops.cluster.names import taken
from megatron_eks.ops.cluster.splitting import (
    refuse_data_loss,
    refuse_node_loss,
    show_changes,
    steps,
)
from megatron_eks.ops.failure import CHECK_FAILED, FAILED, INTERRUPTED, USAGE, Failure
from megatron_eks.plan.cluster.cluster import ClusterPlan
from megatron_eks.plan.cost import stack_costs, total
from megatron_eks.project import read_document


def run(
    stacks: Sequence[str],
    tools: Tools,
    cdk: Cdk,
    *,
    import_existing: bool = False,
    replace_data: bool = False,
) -> int:
    """Deploy stacks by their names or the last parts of these, or all; return the exit code.

    `import_existing` takes over what was kept of an earlier deployment, and `replace_data` says
    that new and empty file systems, buckets and repositories are what is wanted.
    """
    plan = tools.plan
    refuse_folder_of_another(tools.project)
    names = _chosen(plan, stacks)
    account = tools.aws.account()
    new = [name for name in names if not _made(name, tools)]
    if new and (foreign := taken(plan, tools.stacks)):
        document = read_document(tools.cluster_file)
        raise ConfigError(document.locate(foreign))
    if plan.stack("Storage") in new and not (replace_data or plan.storage.existing):
        _refuse_second_file_system(tools)
    if not _agreed(new, account, tools):
        return FAILED
    deployment = Deployment(tools, cdk, import_existing=import_existing, replace_data=replace_data)
    sizes = tools.node_groups.wanted()
    try:
        _synthesise(account, tools, cdk)
        complete = all(deployment.deploy(name) for name in names)
    except KeyboardInterrupt:
        after = "\nnothing is under way; `meks deploy` goes on where this ended"
        if stack := deployment.executing:
            after = (
                f"\nAWS goes on with {stack}. `meks deploy` waits for it and does the rest.\n"
                f"To take an update back: aws cloudformation cancel-update-stack "
                f"--region {tools.aws.region} --stack-name {stack}"
            )
        tools.console.say(after)
        return INTERRUPTED
    except Failure as failure:
        if resized := _resized(sizes, tools):
            tools.console.say(str(failure))
            raise resized from failure
        raise
    if resized := _resized(sizes, tools):
        raise resized
    if not complete:
        return FAILED
    file = outputs.record(tools)
    tools.console.say(f"wrote {file}; next: {outputs.next_step(tools)}")
    return 0


def _synthesise(account: str, tools: Tools, cdk: Cdk) -> None:
    if not is_bootstrapped(tools.aws):
        tools.console.say("cdk bootstrap: the CDK's bucket and roles in this account and region")
        cdk.bootstrap(account)
    tools.console.say("writing the templates")
    cdk.synth()


class Deployment:
    """One run over some stacks."""

    def __init__(
        self, tools: Tools, cdk: Cdk, *, import_existing: bool, replace_data: bool
    ) -> None:
        self._import_existing, self._replace_data = import_existing, replace_data
        self._tools, self._cdk, self._stacks = tools, cdk, tools.stacks
        # A name for each run: what an earlier one left behind must not be executed by this one.
        self._change_set = f"meks-{uuid.uuid4().hex[:12]}"
        self.executing = ""
        """The stack that CloudFormation works on by order of this run."""

    def deploy(self, name: str) -> bool:
        """Deploy one stack in as many steps as it takes; False where the user declines."""
        present = self._stacks.find(name)
        if present is not None and present.busy:
            self._tools.console.say(f"{name} is {present.status}: waiting for that first")
            present = following.follow(self._stacks, name, self._tools.console)
        # The CDK removes by itself what is left of a stack whose creation failed.
        if present is None or not present.made:
            return self._step(name, None)
        if present.status == "DELETE_FAILED":
            found = "it was to be deleted, and that did not come to its end"
            raise Failure(Code.STACK_FAILED, found, "run: meks cleanup; meks deploy", where=name)
        old, new = self._stacks.template(name), self._cdk.template(name)
        templates = steps(old, new)
        for number, template in enumerate(templates, 1):
            if len(templates) > 1:
                self._cdk.use(name, template)
            if not self._step(name, (old, new), number, len(templates)):
                return False
        return True

    def _step(
        self, name: str, change: tuple[Template, Template] | None, step: int = 1, of: int = 1
    ) -> bool:
        console, stacks = self._tools.console, self._stacks
        part = f", step {step} of {of}" if of > 1 else ""
        console.say(f"{name}{part}: comparing with what is deployed")
        change_set = f"{self._change_set}-{step}"
        # Of a new stack only repositories can be there before it: the names of all else go with
        # it, or are CloudFormation's.
        kept = change is None and name == self._tools.plan.stack("Images")
        take_over = self._import_existing or (kept and retained.repositories(self._tools))
        try:
            self._cdk.prepare(name, change_set, import_existing=bool(take_over))
        except Failure as failure:
            stack = stacks.find(name)
            if stack is not None and stack.busy:
                raise _overtaken(name) from failure
            raise
        changes = stacks.changes(name, change_set)
        if not changes:
            if changes is not None:
                stacks.forget(name, change_set)
            console.say(f"{name}{part}: no changes")
            return True
        show_changes(f"{name}{part}", changes, console)
        try:
            if change is not None:
                scaled = {each.name for each in self._tools.plan.scaled_pools}
                refuse_node_loss(*change, changes, self._tools.node_groups, scaled)
                refuse_data_loss(name, changes, allowed=self._replace_data)
            agreed = change is None or console.confirm(f"Change {name}?")
        except BaseException:
            stacks.forget(name, change_set)
            raise
        if not agreed:
            stacks.forget(name, change_set)
            console.say("nothing was changed")
            return False
        self.executing = name
        if not following.carry_out(stacks, name, change_set, console):
            raise _overtaken(name)
        self.executing = ""
        return True


def _overtaken(name: str) -> Failure:
    found = "somebody else changes it at the same time; of this change nothing was made"
    remedy = "run `meks deploy` again: it waits for the other one, and compares anew"
    return Failure(Code.STACK_FAILED, found, remedy, where=name)


def _chosen(plan: ClusterPlan, wanted: Sequence[str]) -> list[str]:
    """Return the stacks to deploy, in the order in which they need each other."""
    names = {part: plan.stack(part) for part in plan.stacks}
    known = {*names, *names.values()}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        found = f"{plan.name} has no stack {unknown[0]!r}"
        remedy = f"known: {', '.join(names)}"
        raise Failure(Code.NOT_DEPLOYED, found, remedy, exit_code=USAGE)
    return [name for part, name in names.items() if not wanted or part in wanted or name in wanted]


def _refuse_second_file_system(tools: Tools) -> None:
    """Refuse an empty file system beside one with data, of a stack that was destroyed."""
    found = retained.left_behind(tools)
    if found:
        raise Failure(
            Code.DATA_REPLACED,
            f"{', '.join(found)} of an earlier {tools.plan.name} is there without its stack, and "
            "a new, empty file system would be made beside it",
            "use it: storage.lustre.existing, with network.vpc_id; or delete it: aws fsx "
            f"delete-file-system --file-system-id {found[0]}; or keep both: --replace-data",
            exit_code=CHECK_FAILED,
        )


def _agreed(new: Sequence[str], account: str, tools: Tools) -> bool:
    """Ask once before anything new is made; what changes is asked for stack by stack."""
    plan = tools.plan
    if not new:
        return True
    tools.console.say(f"to make in account {account}, {plan.region}: {', '.join(new)}")
    kept = retained.repositories(tools) if plan.stack("Images") in new else []
    if kept:
        tools.console.say(f"taken over, with the images in it: repository {', '.join(kept)}")
    whole = total(
        price.total
        for part, each in stack_costs(plan).items()
        if (name := plan.stack(part)) in new or _made(name, tools)
        for price in each
    )
    price = "an unknown sum" if whole is None else f"{whole:.2f} USD"
    tools.console.say(f"{plan.name} then costs {price} an hour, and no GPU node starts")
    if tools.console.confirm("Go on?"):
        return True
    tools.console.say("nothing was made")
    return False


def _made(name: str, tools: Tools) -> bool:
    stack = tools.stacks.find(name)
    return stack is not None and stack.made


def _resized(before: Mapping[str, int], tools: Tools) -> Failure | None:
    """Compare how many nodes each pool is asked to have; CloudFormation must not change that."""
    after = tools.node_groups.wanted()
    pools = {pool.name for pool in tools.plan.pools if pool.idle_minutes is None}
    changed = [
        (name, nodes, after[name])
        for name, nodes in before.items()
        if name in pools and after.get(name, nodes) != nodes
    ]
    if not changed:
        return None
    return Failure(
        Code.WANTED_SIZE_CHANGED,
        "; ".join(f"{name} wanted {old} nodes before and {new} now" for name, old, new in changed),
        "run: " + "; ".join(f"meks scale {name} {old}" for name, old, _ in changed),
    )
