"""What a change set does, in plain lines, and what of it is refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.ops.aws.stacks import DATA_TYPES, Change, Template, resources_of
from megatron_eks.ops.cluster.node_groups import NodeGroups
from megatron_eks.ops.cluster.splitting import (
    NODE_GROUP,
    NodeGroupChange,
    node_group_changes,
    references,
)
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import CHECK_FAILED, Failure
from megatron_eks.ops.output import count

# More than this are counted instead of listed: a new stack is no news line by line.
_LISTED = 12


@dataclass(frozen=True)
class Verdict:
    """What the node groups of a stack have to do with a new template."""

    in_use: Mapping[str, tuple[str, int]]
    """Name and nodes of each pool that has some, by logical id."""
    renewals: tuple[NodeGroupChange, ...]
    """Changes that would end the nodes of a pool in use."""
    keep: tuple[str, ...]
    """Pools in use whose new launch template differs in tags alone: it waits."""
    notes: tuple[str, ...]
    references: Mapping[str, Mapping[str, frozenset[str]]]
    """What the launch template of each pool in use names, by key."""

    def refuse(self, changes: Sequence[Change]) -> None:
        """Raise Failure if pools in use would lose their nodes."""
        reasons = {change.logical_id: _keys(change) for change in self.renewals}
        for change in changes:
            if change.logical_id in self.in_use and change.verb in {"remove", "replace"}:
                reasons[change.logical_id] = f"node group: {change.verb}"
        replaced = {change.logical_id for change in changes if change.verb == "replace"}
        for logical_id, names in self.references.items():
            keys = [key for key, named in names.items() if named & replaced]
            if keys:
                reasons.setdefault(logical_id, f"launch template: {', '.join(keys)}")
        if not reasons:
            return
        pools = [(*self.in_use[logical_id], why) for logical_id, why in reasons.items()]
        raise Failure(
            Code.NODES_IN_USE,
            "; ".join(
                f"{name} has {count(nodes, 'node')}, and this ends them ({why})"
                for name, nodes, why in pools
            ),
            "let the jobs end, then run: "
            + "; ".join(
                [f"meks scale {name} 0" for name, _, _ in pools]
                + ["meks deploy"]
                + [f"meks scale {name} {nodes}" for name, nodes, _ in pools]
            ),
            exit_code=CHECK_FAILED,
        )


def judge(old: Template, new: Template, groups: NodeGroups) -> Verdict:
    """Ask EKS which pools have nodes, and compare with what the new template changes."""
    in_use = {}
    for logical_id, resource in resources_of(old).items():
        properties = resource.get("Properties")
        name = properties.get("NodegroupName") if isinstance(properties, dict) else None
        # The system nodes have no name: they always run, and are replaced one by one.
        if resource.get("Type") == NODE_GROUP and name:
            group = groups.find(str(name))
            nodes = max(group.wanted, groups.instances(group)) if group else 0
            if nodes:
                in_use[logical_id] = (str(name), nodes)
    changes = [change for change in node_group_changes(old, new) if change.renews_nodes]
    used = [change for change in changes if change.logical_id in in_use]
    keep = [change for change in used if change.only_tags]
    notes = [
        f"{change.name} keeps its nodes and their tags; new tags come with a `meks deploy` "
        "while it has none"
        for change in keep
    ]
    if any(not change.name for change in changes):
        notes.append("the system nodes were replaced one by one; jobs on GPU nodes go on")
    return Verdict(
        in_use,
        tuple(change for change in used if not change.only_tags),
        tuple(change.logical_id for change in keep),
        tuple(notes),
        {logical_id: references(logical_id, new) for logical_id in in_use},
    )


def refuse_data_loss(stack: str, changes: Sequence[Change], *, allowed: bool) -> None:
    """Raise Failure if something that holds data would be new and empty afterwards."""
    lost = [
        f"{change.verb} {change.logical_id} ({change.kind})"
        for change in changes
        if change.kind in DATA_TYPES and change.verb in {"remove", "replace"}
    ]
    if lost and not allowed:
        raise Failure(
            Code.DATA_REPLACED,
            f"jobs would no longer find their data: {', '.join(lost)}",
            "take the change back; or add --replace-data, which keeps the old one unless "
            "storage.retain is false",
            where=stack,
            exit_code=CHECK_FAILED,
        )


def show_changes(title: str, changes: Sequence[Change], console: Console) -> None:
    """Write what a change set does, the most drastic first."""
    order = ("remove", "replace", "may replace", "change", "take over", "add")
    verbs = [change.verb for change in changes]
    counts = [f"{verbs.count(verb)} to {verb}" for verb in order if verb in verbs]
    console.say(f"{title}: {', '.join(counts)}")
    for verb in order:
        named = [change for change in changes if change.verb == verb]
        if verb == "add" and len(named) > _LISTED:
            continue
        for change in named:
            kind = change.kind.removeprefix("AWS::")
            console.say(f"  {verb:11} {change.logical_id} ({kind})")
            if change.properties:
                console.say(f"  {'':11}   {', '.join(change.properties)}")


def _keys(change: NodeGroupChange) -> str:
    template = [f"launch template: {', '.join(change.template)}"] if change.template else []
    return "; ".join([*template, *change.version])
