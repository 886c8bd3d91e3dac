"""`meks scale`: GPU nodes taken until their GPUs can be used, and given back."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from megatron_eks.config.codes import Code
from megatron_eks.kubernetes.client import Client
from megatron_eks.ops.aws.tools import Tools
from megatron_eks.ops.cluster import node_groups
from megatron_eks.ops.cluster.capacity import explain, start_of, wait_until
from megatron_eks.ops.cluster.node_groups import NodeGroup
from megatron_eks.ops.console import duration
from megatron_eks.ops.failure import DONE, FAILED, INTERRUPTED, NOT_FOUND, USAGE, Failure
from megatron_eks.ops.output import count
from megatron_eks.plan.cluster.pools import PoolPlan

Connect = Callable[[], Client]

_POLL_SECONDS = 10
_IDLE_POLL_SECONDS = 30
# EC2 starts a p5 node in about ten minutes, and its plugins need some more.
DEFAULT_MINUTES = 30
_SETTLE_SECONDS = 30 * 60
_EMPTY_SECONDS = 30 * 60
# A run that this waits for has its own end; a Capacity Block may be half a year long.
_IDLE_SECONDS = 200 * 24 * 3600


@dataclass(frozen=True)
class Wish:
    """How many nodes a pool shall have, and when."""

    pool: str
    nodes: int
    at_start: bool = False
    """When the pool's Capacity Block or reservation starts."""
    when_idle: bool = False
    """Not before the last job's pod on the pool has ended."""
    minutes: int = DEFAULT_MINUTES
    """How long to wait for nodes before what was asked for is taken back."""


def run(wish: Wish, tools: Tools, connect: Connect) -> int:
    """Scale a pool; raise Failure where that does not work."""
    pool = tools.pool(wish.pool)
    if pool.idle_minutes is not None:
        found = f"jobs in queues bring the nodes of {pool.name}, and idle ones go by themselves"
        remedy = "submit the job; or set scale: manual, then: meks deploy and meks apply"
        raise Failure(Code.SCALED_BY_QUEUE, found, remedy, where=pool.name, exit_code=USAGE)
    if not 0 <= wish.nodes <= pool.max_nodes:
        nodes = count(wish.nodes, "node")
        found = f"{nodes}, and the cluster file allows {pool.name} {pool.max_nodes}"
        remedy = f"use 0 to {pool.max_nodes}, or raise gpu_pools max_nodes"
        raise Failure(Code.NODE_COUNT, found, remedy, exit_code=USAGE)
    group = _settled(pool, tools)
    try:
        if wish.nodes > group.wanted:
            return _take(wish, pool, group, tools, connect)
        if wish.nodes < max(group.wanted, tools.node_groups.instances(group)):
            return _give_back(wish, pool, group, tools, connect)
        tools.console.say(f"{pool.name} has {count(wish.nodes, 'node')} already")
        if wish.nodes:
            _wait_for_nodes(wish, pool, group, tools, connect())
    except KeyboardInterrupt:
        tools.console.say(_interrupted(wish, node_group(pool.name, tools)))
        return INTERRUPTED
    return DONE


def node_group(pool: str, tools: Tools) -> NodeGroup:
    """Return a pool's node group; raise Failure where there is none."""
    groups = tools.node_groups
    group = groups.find(tools.pool(pool).name)
    if group is None or group.status == "DELETING":
        text = f"cluster {groups.cluster} has no node group {pool}"
        remedy = "run: meks deploy"
        if "Cluster" not in tools.plan.stacks:
            remedy = "its owner makes one of this name, or scales it another way"
        raise Failure(Code.NOT_DEPLOYED, text, remedy, exit_code=NOT_FOUND)
    return group


def _interrupted(wish: Wish, group: NodeGroup) -> str:
    again = f"meks scale {wish.pool} {wish.nodes}"
    if group.wanted != wish.nodes:
        again += " --when-idle" * wish.when_idle + " --at start" * wish.at_start
        return f"\nAWS was asked for nothing yet; to go on: {again}"
    if not wish.nodes:
        return f"\nAWS goes on giving the nodes back; to see it: {again}"
    back = f"meks scale {wish.pool} 0"
    return f"\nAWS goes on taking nodes; to wait again: {again}; to give them back: {back}"


def _settled(pool: PoolPlan, tools: Tools) -> NodeGroup:
    """Return a pool's node group when EKS takes a new size for it."""
    found: list[NodeGroup] = []

    def settled() -> bool:
        found[:] = [node_group(pool.name, tools)]
        return found[0].status not in {"CREATING", "UPDATING"}

    if not tools.console.wait(_SETTLE_SECONDS, _POLL_SECONDS, settled):
        text = f"node group {pool.name} is busy for {duration(_SETTLE_SECONDS)}"
        raise Failure(Code.WAITED_TOO_LONG, text, "look at its updates in the EKS console")
    return found[0]


def _take(wish: Wish, pool: PoolPlan, group: NodeGroup, tools: Tools, connect: Connect) -> int:
    tools.project.refuse_errors()
    console = tools.console
    start = start_of(pool, tools) if pool.capacity.reservation_id else None
    if wish.at_start and start is None:
        found = f"{pool.name} has no Capacity Block or reservation that has a start"
        raise Failure(Code.NODE_COUNT, found, "leave --at start out", exit_code=USAGE)
    if not wish.at_start and start is not None and start > console.clock.now():
        found = f"{pool.capacity.reservation_id} starts at {start:%Y-%m-%d %H:%M} UTC"
        raise Failure(Code.NO_CAPACITY, found, "add --at start, which waits for it")
    # Before anything is paid for: what nobody can reach is no use to anybody.
    kubernetes = connect()
    price = tools.plan.prices.instance(pool.instance.name)
    paid = pool.capacity.kind in {"on_demand", "reservation"} and price is not None
    cost = f"{price * wish.nodes:.2f} USD an hour" if paid and price else "at their own price"
    console.say(f"{pool.name}: {wish.nodes} x {pool.instance.name} in {pool.zone}, {cost}")
    if wish.at_start and start is not None:
        wait_until(start, console)
    asked = console.clock.now()
    tools.node_groups.resize(group, wish.nodes)
    try:
        _wait_for_nodes(wish, pool, group, tools, kubernetes, asked=asked)
    except Failure:
        now = _settled(pool, tools)
        # What somebody else has asked for meanwhile is theirs.
        if now.wanted == wish.nodes:
            tools.node_groups.resize(now, group.wanted)
            back = count(group.wanted, "node")
            console.say(f"{pool.name} is back at {back}: nobody pays for a part")
        raise
    return DONE


def _refuse_change(wish: Wish, group: NodeGroup) -> None:
    if group.status == "ACTIVE" and group.wanted != wish.nodes:
        found = f"another user has scaled it to {count(group.wanted, 'node')}"
        remedy = f"if you want to change that: meks scale {wish.pool} {wish.nodes}"
        raise Failure(Code.NO_CAPACITY, found, remedy, where=wish.pool)


def _wait_for_nodes(
    wish: Wish,
    pool: PoolPlan,
    group: NodeGroup,
    tools: Tools,
    kubernetes: Client,
    *,
    asked: datetime | None = None,
) -> None:
    """Wait until every node offers its GPUs; raise Failure where that will not happen."""
    console, groups = tools.console, tools.node_groups
    began = asked or console.clock.now()
    since = began - timedelta(seconds=_POLL_SECONDS)
    said: set[str] = set()
    state = ""

    def usable() -> bool:
        nonlocal state
        present = groups.find(pool.name) or group
        _refuse_change(wish, present)
        running = groups.instances(present)
        try:
            ready = node_groups.usable_nodes(kubernetes, pool)
        except OSError as error:
            # Nodes take minutes; a network that is away for one of them is no reason to end this.
            console.say(f"  {duration((console.clock.now() - began).total_seconds())}: {error}")
            return False
        now = f"{running} of {wish.nodes} instances, {ready} with usable GPUs"
        passed = duration((console.clock.now() - began).total_seconds())
        if now != state:
            console.say(f"  {passed}: {now}")
            state = now
        if ready >= wish.nodes:
            return True
        reasons = [f"{code}: {text}" for code, text in present.issues]
        for message in [*reasons, *groups.launch_failures(present, since)]:
            reason = explain(message, pool, wish.nodes)
            if not reason.passes:
                raise Failure(Code.NO_CAPACITY, reason.found, reason.remedy, where=pool.name)
            if reason.found not in said:
                said.add(reason.found)
                console.say(f"  {passed}: {reason.found}; {reason.remedy}")
        return False

    if not console.wait(wish.minutes * 60, _POLL_SECONDS, usable):
        found = f"after {wish.minutes} minutes {state}"
        why = f" ({'; '.join(sorted(said))})" if said else ""
        remedy = "wait longer with --minutes, or reserve capacity"
        if not said:
            remedy = "without GPUs on a running node look at the device plugins: meks status"
        raise Failure(Code.NO_CAPACITY, f"{found}{why}", remedy, where=pool.name)
    console.say(f"{pool.name} is ready: {count(wish.nodes, 'node')}")


def _give_back(wish: Wish, pool: PoolPlan, group: NodeGroup, tools: Tools, connect: Connect) -> int:
    console, groups = tools.console, tools.node_groups
    if wish.when_idle:
        _wait_idle(pool, tools, connect())
    else:
        try:
            pods = node_groups.job_pods(connect(), pool, *tools.plan.platform.namespaces)
        except (Failure, OSError) as error:
            # An API server out of reach must not keep nodes running.
            console.say(f"note: jobs on {pool.name} cannot be seen: {error}")
            if not console.confirm("Give the nodes back all the same?"):
                raise
            pods = []
        if pods:
            console.say(f"on {pool.name}: {count(len(pods), 'pod')} of jobs ({_some(pods)})")
            if not console.confirm("End them, and lose what they have not saved?"):
                console.say(f"nothing was changed; meks scale {pool.name} {wish.nodes} --when-idle")
                return FAILED
    groups.resize(_settled(pool, tools), wish.nodes)
    state = -1

    def gone() -> bool:
        nonlocal state
        left = groups.instances(groups.find(pool.name) or group)
        if left != state:
            console.say(f"  {count(left, 'instance')} left, {wish.nodes} to stay")
            state = left
        return left <= wish.nodes

    if not console.wait(_EMPTY_SECONDS, _POLL_SECONDS, gone):
        found = f"{pool.name} still has {count(state, 'instance')}, which are billed"
        remedy = "look at its scaling group's activities in the EC2 console"
        raise Failure(Code.WAITED_TOO_LONG, found, remedy)
    console.say(f"{pool.name} has {count(wish.nodes, 'node')}")
    return DONE


def _wait_idle(pool: PoolPlan, tools: Tools, kubernetes: Client) -> None:
    state = ""

    def idle() -> bool:
        nonlocal state
        try:
            pods = node_groups.job_pods(kubernetes, pool, *tools.plan.platform.namespaces)
        except OSError as error:
            # Jobs take days, and so does this; a network that is away for an hour is no reason.
            pods, now = [""], f"no answer from {error}; trying again"
        else:
            used = f"{pool.name} is in use by {count(len(pods), 'pod')}: {_some(pods)}"
            now = f"{used}; waiting for that"
        if pods and now != state:
            tools.console.say(now)
            state = now
        return not pods

    if not tools.console.wait(_IDLE_SECONDS, _IDLE_POLL_SECONDS, idle):
        found = f"jobs on {pool.name} do not end"
        raise Failure(Code.JOBS_ON_POOL, found, "look at them: meks status")


def _some(pods: list[str]) -> str:
    return ", ".join(pods[:3]) + (" ..." if pods[3:] else "")
