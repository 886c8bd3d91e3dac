"""`meks cleanup`: everything that costs money goes in order; what holds data stays unless named."""

from collections.abc import Callable

from megatron_eks.catalog.pricing import AS_OF, HOURS_PER_MONTH, KEY_USD_PER_MONTH
from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import Client
from megatron_eks.kubernetes.connection import ApiError
from megatron_eks.ops.aws import following
from megatron_eks.ops.aws.session import if_there
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.cluster import retained
from megatron_eks.ops.console import duration
from megatron_eks.ops.failure import DONE, FAILED, INTERRUPTED, USAGE, Failure
from megatron_eks.ops.kube import jobs, teams
from megatron_eks.ops.output import count, table, usd
from megatron_eks.plan.cost import stack_costs

_POLL_SECONDS = 10
_EMPTY_SECONDS = 30 * 60
_PROTECTION_SECONDS = 15 * 60


def run(
    tools: Tools,
    connect: Callable[[], Client],
    *,
    delete_storage: bool = False,
    delete_images: bool = False,
    confirm: str = "",
) -> int:
    """Delete a cluster; run again after an interruption, it goes on where it ended.

    `confirm` is the cluster's name, which answers the second question about storage.
    """
    plan, console, stacks = tools.plan, tools.console, tools.stacks
    # Also what is left of a creation that failed.
    parts = dict.fromkeys((*plan.stacks, "Observability"))  # which may be off by now
    present = [part for part in reversed(parts) if stacks.find(plan.stack(part))]
    goes = _goes(present, tools, delete_storage=delete_storage, delete_images=delete_images)
    repositories = retained.repositories(tools) if delete_images else []
    if not goes and not repositories:
        console.say("nothing to delete")
        return _remains(present, tools)
    if "Cluster" in goes and plan.access.deletion_protection:
        raise Failure(
            Code.PROTECTED,
            f"{tools.cluster_file} protects {plan.name}: access.deletion_protection is true",
            "set it to false; nothing needs to be deployed for that",
            exit_code=USAGE,
        )
    if not _agreed(goes, repositories, confirm, tools):
        console.say("nothing was deleted")
        return FAILED
    try:
        if "Cluster" in goes:
            _end_jobs(tools, connect)
            _end_nodes(tools)
            _lift_protection(tools)
        for part in goes:
            _delete(part, tools)
        if delete_images:
            retained.delete_repositories(tools)
    except KeyboardInterrupt:
        console.say("\nAWS goes on with what it was told; meks cleanup does the rest")
        return INTERRUPTED
    return _remains([part for part in present if part not in goes], tools)


def _goes(
    present: list[str], tools: Tools, *, delete_storage: bool, delete_images: bool
) -> list[str]:
    """Return the stacks to delete, those first that use others."""
    # The scraper would be billed on, of a cluster that is gone.
    named = ("Observability", "Cluster", *(["Images"] if delete_images else []))
    goes: list[str] = [part for part in named if part in present]
    if "Storage" in present:
        if not delete_storage:
            return goes
        goes.append("Storage")
    elif "Network" in present:
        # An earlier run may have left file systems without their stack.
        resources = tools.stacks.resources(tools.plan.stack("Network"))
        vpc = next((physical for _, kind, physical in resources if kind == "AWS::EC2::VPC"), "")
        found = retained.file_systems(tools, vpc)
        if found:
            tools.console.say(f"note: {', '.join(found)} stands in the VPC, which therefore stays")
            return goes
    return [*goes, *(["Network"] if "Network" in present else [])]


def _agreed(goes: list[str], repositories: list[str], confirmed: str, tools: Tools) -> bool:
    plan, console = tools.plan, tools.console
    console.say(f"to delete in account {tools.aws.account()}, {plan.region}:")
    if "Cluster" in goes:
        console.say(f"  all jobs and GPU nodes of {plan.eks_name}")
    for part in goes:
        console.say(f"  {plan.stack(part)}")
    for name in repositories:
        console.say(f"  {name}, with all images that were built")
    if not console.confirm("Go on?"):
        return False
    if "Storage" not in goes:
        return True
    console.say(
        "file systems, buckets and keys go too: every data set, checkpoint and log in them, "
        "for good"
    )
    if confirmed:
        return confirmed == plan.name
    return console.confirm_name("Delete all of it?", plan.name, f"--confirm {plan.name}")


def _end_jobs(tools: Tools, connect: Callable[[], Client]) -> None:
    """Delete jobs, so that they end by a signal and not with their nodes."""
    try:
        kubernetes = connect()
        for job in teams.everybody(kubernetes, tools.plan):
            jobs.delete(kubernetes, job)
            tools.console.say(f"ended {job.kind} {job.name}")
    except (ApiError, Failure, OSError) as error:
        # Paying for nodes is worse: what cannot be told to end goes with them.
        tools.console.say(f"note: jobs end with their nodes: {error}")


def _end_nodes(tools: Tools) -> None:
    groups, console = tools.node_groups, tools.console
    present = [group for pool in tools.plan.pools if (group := groups.find(pool.name))]
    for group in present:
        if group.wanted and group.status != "DELETING":
            groups.resize(group, 0)
            console.say(f"{group.name}: {count(group.wanted, 'node')} given back")

    def left() -> int:
        return sum(groups.instances(group) for group in present)

    if not console.wait(_EMPTY_SECONDS, _POLL_SECONDS, lambda: left() == 0):
        found = f"{count(left(), 'GPU node')} still there after {duration(_EMPTY_SECONDS)}"
        raise Failure(Code.WAITED_TOO_LONG, found, "run meks cleanup again")


def _lift_protection(tools: Tools) -> None:
    """Let EKS delete the cluster, as the cluster file says."""
    eks, name = tools.aws.client("eks"), tools.plan.eks_name

    def cluster() -> dict[str, object] | None:
        found = if_there(eks.describe_cluster, "ResourceNotFoundException", name=name)
        return found and dict(found["cluster"])

    present = cluster()
    if present is None or not present.get("deletionProtection"):
        return
    eks.update_cluster_config(name=name, deletionProtection=False)
    tools.console.say(f"{name}: protection against deletion is off")

    def settled() -> bool:
        now = cluster()
        return now is None or (now["status"] == "ACTIVE" and not now.get("deletionProtection"))

    if not tools.console.wait(_PROTECTION_SECONDS, _POLL_SECONDS, settled):
        found = f"EKS still protects {name}"
        raise Failure(Code.WAITED_TOO_LONG, found, "run meks cleanup again")


def _delete(part: str, tools: Tools) -> None:
    name = tools.plan.stack(part)
    stacks, console = tools.stacks, tools.console
    stack = following.follow(stacks, name, console)
    if stack is None:
        return
    before = stacks.last_event(name)
    if part in {"Storage", "Images"}:
        # A deletion that failed half-way takes no update any more, and had the retention lifted.
        if stack.status != "DELETE_FAILED":
            retained.lift_retention(name, tools)
        retained.empty_buckets(name, tools)
    started = console.clock.now()
    console.say(f"{name}: deleting")
    stacks.delete(name)
    left = following.follow(stacks, name, console, before)
    if left is not None:
        raise following.failed(stacks, left, before)
    took = duration((console.clock.now() - started).total_seconds())
    console.say(f"{name}: deleted after {took}")


def _remains(parts: list[str], tools: Tools) -> int:
    plan = tools.plan
    rows = []
    for part in parts:
        prices = stack_costs(plan).get(part, ())
        for price in prices:
            month = None if price.total is None else price.total * HOURS_PER_MONTH
            rows.append((plan.stack(part), price.item, usd(month)))
        if part == "Storage":
            rows.append((plan.stack(part), "bucket", "by use"))
        if part == "Images" or (part == "Storage" and plan.storage.kms_key_arn is None):
            rows.append((plan.stack(part), "key", f"{KEY_USD_PER_MONTH:.2f}"))
        elif not prices:
            rows.append((plan.stack(part), "", "by use"))
    repositories = retained.repositories(tools)
    owner = plan.stack("Images") if "Images" in parts else ""
    rows += [(owner, f"repository {name}", "by use") for name in repositories]
    if not rows:
        tools.console.say(f"nothing of {plan.name} is left")
        return DONE
    header = ("REMAINS", "WHAT", "USD/MONTH")
    tools.console.write("\n".join(table(header, rows, right=(2,))) + "\n")
    tools.console.say(f"list prices of {AS_OF}")
    if "Storage" in parts:
        tools.console.say("storage and the network it stands in go with --delete-storage")
    if "Images" in parts or repositories:
        tools.console.say("images go with --delete-images")
    tools.console.say("meks deploy makes the rest again, with what is kept")
    return DONE
