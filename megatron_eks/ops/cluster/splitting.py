"""What a change set does and what of it is refused; changes of node groups that AWS wants apart."""

import copy
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.ops.aws.stacks import DATA_TYPES, Change, Template, resources_of
from megatron_eks.ops.cluster.node_groups import NodeGroups
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import CHECK_FAILED, Failure
from megatron_eks.ops.output import count

NODE_GROUP = "AWS::EKS::Nodegroup"

# "Version and ReleaseVersion updates cannot be combined with other updates" (aws-cdk#16644,
# containers-roadmap#1258), and that goes for the launch template too (CloudFormation User Guide,
# AWS::EKS::Nodegroup, Tags). Each of these is an update of its own; all else is a third.
_VERSION = frozenset({"Version", "ReleaseVersion"})
_TEMPLATE = frozenset({"LaunchTemplate"})


@dataclass(frozen=True)
class NodeGroupChange:
    """What a new template changes in a node group that exists."""

    logical_id: str
    name: str
    """Of the pool; empty for the system nodes."""
    template: tuple[str, ...]
    """Keys of the launch template's data that change."""
    version: tuple[str, ...]
    other: tuple[str, ...]

    @property
    def renews_nodes(self) -> bool:
        """Whether EKS ends every node and starts another in its place."""
        return bool(self.template or self.version)

    @property
    def parts(self) -> tuple[frozenset[str], ...]:
        """The updates that it takes, each as the node group's properties."""
        parts = (
            _TEMPLATE if self.template else None,
            _VERSION if self.version else None,
            frozenset(self.other) or None,
        )
        return tuple(part for part in parts if part)


def node_group_changes(old: Template, new: Template) -> list[NodeGroupChange]:
    """Compare the node groups that two templates have in common."""
    before, after = resources_of(old), resources_of(new)
    changes = []
    for logical_id, resource in after.items():
        if resource.get("Type") != NODE_GROUP or logical_id not in before:
            continue
        theirs, ours = _properties(before[logical_id]), _properties(resource)
        changed = {key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key)}
        template = _template_changes(logical_id, before, after)
        if changed & _TEMPLATE and not template:
            template = ("LaunchTemplate",)
        change = NodeGroupChange(
            logical_id=logical_id,
            name=str(ours.get("NodegroupName", "")),
            template=template,
            version=tuple(sorted(changed & _VERSION)),
            other=tuple(sorted(changed - _VERSION - _TEMPLATE)),
        )
        if change.parts:
            changes.append(change)
    return changes


def steps(old: Template, new: Template) -> list[Template]:
    """Return the templates to deploy one after another; the last is the new one itself.

    A step holds back properties of node groups as they are deployed; everything else is new from
    the first step on, launch templates included, so no step refers to what it no longer has.
    """
    changes = node_group_changes(old, new)
    count = max((len(change.parts) for change in changes), default=1)
    templates = []
    for done in range(1, count):
        step = copy.deepcopy(new)
        for change in changes:
            theirs = _properties(resources_of(old)[change.logical_id])
            ours = _properties(resources_of(step)[change.logical_id])
            for key in (key for part in change.parts[done:] for key in part):
                if key in theirs:
                    ours[key] = copy.deepcopy(theirs[key])
                else:
                    ours.pop(key, None)
        templates.append(step)
    return [*templates, new]


def references(group: str, template: Template) -> dict[str, frozenset[str]]:
    """Return which resources the launch template of a node group names, by key of its data."""
    resources = resources_of(template)
    body = resources.get(_launch_template_of(group, resources), {})
    data = _mapping(_properties(body).get("LaunchTemplateData"))
    return {key: frozenset(_named(value)) for key, value in data.items()}


def _named(value: Json) -> Iterator[str]:
    """Yield the resources that a value refers to; what else it names does not matter."""
    if isinstance(value, list):
        for each in value:
            yield from _named(each)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == "Ref":
                yield str(inner)
            elif key == "Fn::GetAtt" and isinstance(inner, list):
                yield str(inner[0])
            else:
                yield from _named(inner)


def _template_changes(
    group: str, before: dict[str, Template], after: dict[str, Template]
) -> tuple[str, ...]:
    """Return which data of a node group's launch template change; any makes a new version."""
    logical_id = _launch_template_of(group, after)
    if logical_id not in after or logical_id not in before:
        return ()
    theirs, ours = (
        _mapping(_properties(side[logical_id]).get("LaunchTemplateData"))
        for side in (before, after)
    )
    return tuple(sorted(key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key)))


def _launch_template_of(group: str, resources: dict[str, Template]) -> str:
    specification = _mapping(_properties(resources[group]).get("LaunchTemplate"))
    return str(_mapping(specification.get("Id")).get("Ref", ""))


def _properties(resource: Template) -> dict[str, Json]:
    return _mapping(resource.get("Properties"))


def _mapping(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


# More than this are counted instead of listed: a new stack is no news line by line.
_LISTED = 12


def refuse_node_loss(
    old: Template,
    new: Template,
    changes: Sequence[Change],
    groups: NodeGroups,
    scaled: Collection[str] = (),
) -> None:
    """Raise Failure if pools in use would lose their nodes; of `scaled` ones idle nodes go."""
    in_use = dict(_in_use(old, groups))
    reasons = {
        change.logical_id: "; ".join(
            [f"launch template: {', '.join(change.template)}"] * bool(change.template)
            + [*change.version]
        )
        for change in node_group_changes(old, new)
        if change.renews_nodes and change.logical_id in in_use
    }
    for change in changes:
        if change.logical_id in in_use and change.verb in {"remove", "replace"}:
            reasons[change.logical_id] = f"node group: {change.verb}"
    replaced = {change.logical_id for change in changes if change.verb == "replace"}
    for logical_id in in_use:
        keys = [key for key, named in references(logical_id, new).items() if named & replaced]
        if keys:
            reasons.setdefault(logical_id, f"launch template: {', '.join(keys)}")
    if not reasons:
        return
    pools = [(*in_use[logical_id], why) for logical_id, why in reasons.items()]
    own = [each for each in pools if each[0] not in scaled]
    raise Failure(
        Code.NODES_IN_USE,
        "; ".join(
            f"{name} has {count(nodes, 'node')}, and this ends them ({why})"
            for name, nodes, why in pools
        ),
        f"let the jobs end{', and idle nodes go' if own != pools else ''}, then run: "
        + "; ".join(
            [f"meks scale {name} 0" for name, _, _ in own]
            + ["meks deploy"]
            + [f"meks scale {name} {nodes}" for name, nodes, _ in own]
        ),
        exit_code=CHECK_FAILED,
    )


def _in_use(old: Template, groups: NodeGroups) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield logical id, and name and nodes, of each pool that has some."""
    for logical_id, resource in resources_of(old).items():
        name = _properties(resource).get("NodegroupName")
        # The system nodes have no name: they always run, and are replaced one by one.
        if resource.get("Type") == NODE_GROUP and name:
            group = groups.find(str(name))
            nodes = max(group.wanted, groups.instances(group)) if group else 0
            if nodes:
                yield logical_id, (str(name), nodes)


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
