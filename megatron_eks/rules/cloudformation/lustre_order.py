"""Rule over what has to be there before a Lustre file system is made."""

from collections.abc import Iterator

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level, Path
from megatron_eks.rules.cloudformation.addon_order import made_before
from megatron_eks.rules.cloudformation.lustre_ports import PORTS, opened_by
from megatron_eks.rules.cloudformation.properties import after, named
from megatron_eks.rules.cloudformation.security_groups import GROUP, Direction, Rule, rules_of
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, items

_DIRECTIONS: tuple[Direction, ...] = ("Ingress", "Egress")


def rules_first(templates: TemplateSet) -> Iterator[Finding]:
    """Require that a file system waits for the rules of its groups that are resources themselves.

    aws-parallelcluster issue 6181 and pull request 6342: FSx looks at the groups when it makes the
    file system, and CloudFormation makes rules at the same time unless DependsOn names them. The
    rules that a group is made with are there by then.
    """
    for system in templates.resources("AWS::FSx::FileSystem"):
        if is_absent(system.properties.get("LustreConfiguration")):
            continue
        carried = items(system.properties.get("SecurityGroupIds")) or []
        reached = templates.targets(carried, system.file)
        groups = [each for each in reached if each is not None and each.type == GROUP]
        # The cluster's own group has rules of EKS that admit whoever carries it.
        if any(each is not None and each.type == "AWS::EKS::Cluster" for each in reached):
            continue
        first = made_before(system, templates, _named)
        late = [
            rule.resource.id
            for direction in _DIRECTIONS
            for rule in _late(groups, direction, system, first, templates)
        ]
        if late:
            names = list(dict.fromkeys(late))
            found = f"does not wait for {', '.join(names)}: FSx looks at the rules of its groups"
            found += " when it makes the file system, and the stack fails when they come later"
            remedy = f"write DependsOn: [{', '.join(names)}]"
            yield system.find(Code.LUSTRE_PORTS, ("DependsOn",), found, remedy, Level.WARNING)


def _late(
    groups: list[Resource],
    direction: Direction,
    system: Resource,
    first: list[Resource],
    templates: TemplateSet,
) -> Iterator[Rule]:
    """Return the rules by which the servers reach each other, and which may come too late."""
    listed = [rules_of(group, direction, templates) for group in groups]
    rules = [rule for each in listed for rule in each or []]
    if None in listed or any(opened_by(rule) is None for rule in rules):
        return
    names = {f"{group.file}#{group.id}" for group in groups}
    wanted = [rule for rule in rules if rule.is_range or rule.peer in names]
    # What another template holds is deployed before this one.
    late = [
        rule
        for rule in wanted
        if rule.resource not in groups
        and rule.resource.file == system.file
        and rule.resource not in first
        and opened_by(rule)
    ]
    there = {port for rule in wanted if rule not in late for port in opened_by(rule) or ()}
    if not there >= PORTS:
        yield from late


def _named(resource: Resource) -> Iterator[tuple[Path, str]]:
    """Return all names after which a resource is made: by DependsOn, and by a reference."""
    yield from after(resource)
    yield from named(dict(resource.properties), ())
