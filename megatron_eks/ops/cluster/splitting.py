"""What a change set does and what of it is refused; changes of node groups that AWS wants apart."""

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence

from megatron_eks.config.codes import Code
from megatron_eks.config.load import Json
from megatron_eks.ops.aws.stacks import DATA_TYPES, Change, Template, resources_of
from megatron_eks.ops.cluster.node_groups import NodeGroups
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import CHECK_FAILED, Failure
from megatron_eks.ops.output import count

_NODE_GROUP = "AWS::EKS::Nodegroup"

# "Version and ReleaseVersion updates cannot be combined with other updates" (aws-cdk#16644,
# containers-roadmap#1258), and that goes for the launch template too (CloudFormation User Guide,
# AWS::EKS::Nodegroup, Tags). Each of these is an update of its own; all else is a third.
_VERSION = frozenset({"Version", "ReleaseVersion"})
_TEMPLATE = frozenset({"LaunchTemplate"})

# More than this are counted instead of listed: a new stack is no news line by line.
_LISTED = 12


def updates(old: Template, new: Template) -> dict[str, list[set[str]]]:
    """Return the updates that each changed node group takes, each as its properties."""
    found = {}
    for group, resource in resources_of(new).items():
        if resource.get("Type") == _NODE_GROUP and group in resources_of(old):
            changed = _differing(*(_properties(group, each) for each in (old, new)))
            if _differing(*(_launch_data(group, each) for each in (old, new))):
                changed |= _TEMPLATE
            parts = (changed & _TEMPLATE, changed & _VERSION, changed - _TEMPLATE - _VERSION)
            if changed:
                found[group] = [part for part in parts if part]
    return found


def steps(old: Template, new: Template) -> list[Template]:
    """Return the templates to deploy one after another; the last is the new one itself.

    A step holds back properties of node groups as they are deployed; everything else is new from
    the first step on, launch templates included, so no step refers to what it no longer has.
    """
    changes = updates(old, new)
    templates = []
    for done in range(1, max(map(len, changes.values()), default=1)):
        step = copy.deepcopy(new)
        for group, parts in changes.items():
            theirs, ours = _properties(group, old), _properties(group, step)
            for key in set().union(*parts[done:]):
                ours.pop(key, None)
                if key in theirs:
                    ours[key] = copy.deepcopy(theirs[key])
        templates.append(step)
    return [*templates, new]


def _differing(theirs: Mapping[str, Json], ours: Mapping[str, Json]) -> set[str]:
    return {key for key in {*theirs, *ours} if theirs.get(key) != ours.get(key)}


def _properties(logical_id: str, template: Template) -> dict[str, Json]:
    return _mapping(resources_of(template).get(logical_id, {}).get("Properties"))


def _launch_data(group: str, template: Template) -> dict[str, Json]:
    """Return the data of a node group's launch template; any change makes a new version."""
    specification = _mapping(_properties(group, template).get("LaunchTemplate"))
    logical_id = str(_mapping(specification.get("Id")).get("Ref", ""))
    return _mapping(_properties(logical_id, template).get("LaunchTemplateData"))


def _mapping(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


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


def refuse_node_loss(
    old: Template,
    new: Template,
    changes: Sequence[Change],
    groups: NodeGroups,
    scaled: Collection[str] = (),
) -> None:
    """Raise Failure if pools in use would lose their nodes; of `scaled` ones idle nodes go."""
    verbs = {change.logical_id: change.verb for change in changes}
    pools = [
        (name, nodes, why)
        for group, name, nodes in _in_use(old, groups)
        if (why := _why_nodes_end(group, old, new, verbs))
    ]
    if not pools:
        return
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


def _why_nodes_end(group: str, old: Template, new: Template, verbs: Mapping[str, str]) -> str:
    """Say why a change ends every node of a group; nothing where it does not."""
    if verbs.get(group) in {"remove", "replace"}:
        return f"node group: {verbs[group]}"
    changed = _differing(_properties(group, old), _properties(group, new))
    data = _launch_data(group, new)
    keys = _differing(_launch_data(group, old), data) or changed & _TEMPLATE
    # Another placement group is another launch template, which no comparison of the two shows.
    for key, value in data.items():
        if any(verbs.get(each) == "replace" for each in _named(value)):
            keys.add(key)
    launch = [f"launch template: {', '.join(sorted(keys))}"] if keys else []
    return "; ".join(launch + sorted(changed & _VERSION))


def _in_use(old: Template, groups: NodeGroups) -> Iterator[tuple[str, str, int]]:
    for logical_id, resource in resources_of(old).items():
        name = _properties(logical_id, old).get("NodegroupName")
        # The system nodes have no name: they always run, and are replaced one by one.
        if resource.get("Type") == _NODE_GROUP and name:
            group = groups.find(str(name))
            nodes = max(group.wanted, groups.instances(group)) if group else 0
            if nodes:
                yield logical_id, str(name), nodes


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
