"""Rule over resources that wait for each other."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.cloudformation.properties import after, named
from megatron_eks.rules.template_set import Resource, TemplateSet

_KEY = "AWS::KMS::Key"


def circles(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse resources that refer to each other, or to themselves, in a circle.

    CloudFormation User Guide, "Troubleshooting", circular dependency: a group that admits itself
    needs a rule of its own. Of a resource of SAM several are made, and what it names may be
    the need of another of them.
    """
    graphs: dict[str, dict[str, set[str]]] = {}
    by_name = {(each.file, each.id): each for each in templates.everything()}
    for resource in templates.everything():
        names = {name for _, name in (*named(dict(resource.body), ()), *after(resource))}
        several = resource.type.startswith("AWS::Serverless::")
        graphs.setdefault(resource.file, {})[resource.id] = set() if several else names
    for resource in templates.everything():
        graph = graphs[resource.file]
        way = _way_back(resource.id, graph)
        # Every member of a circle finds it; the first by name says so.
        if way and min(way) == resource.id:
            found = f"{' -> '.join([*way, way[0]])}: CloudFormation refuses the template"
            members = [by_name[resource.file, name] for name in way]
            yield resource.find(Code.REFERENCE, (), found, _remedy(members))


def _remedy(members: list[Resource]) -> str:
    """Say how a circle of these is broken: by a part that stands alone, or by waiting less."""
    kinds = {each.type for each in members}
    here = {each.id for each in members}
    waits = [each.id for each in members if here & {name for _, name in after(each)}]
    if waits:
        return f"remove the DependsOn of {waits[0]}"
    if _KEY in kinds:
        return "let the key's policy allow the account alone, and the role's own the use of the key"
    if any(kind.startswith("AWS::IAM::") for kind in kinds):
        return "write the policy as a resource of its own, AWS::IAM::RolePolicy"
    return "break the circle by a resource of its own, such as SecurityGroupIngress"


def _way_back(start: str, graph: Mapping[str, set[str]]) -> list[str]:
    """Return the shortest way from a resource to itself; none where there is none."""
    ways, seen = [[start]], {start}
    for way in ways:
        for name in sorted(graph.get(way[-1], ())):
            if name == start:
                return way
            if name in graph and name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []
