"""Rule over resources that wait for each other."""

from collections.abc import Iterator, Mapping

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.rules.cloudformation.properties import after, named
from megatron_eks.rules.template_set import TemplateSet


def circles(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse resources that refer to each other, or to themselves, in a circle.

    CloudFormation User Guide, "Troubleshooting", circular dependency: a group that admits itself
    needs a rule of its own. Of a resource of SAM several are made, and what it names may be
    the need of another of them.
    """
    graphs: dict[str, dict[str, set[str]]] = {}
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
            remedy = "break the circle by a resource of its own, such as SecurityGroupIngress"
            yield resource.find(Code.REFERENCE, (), found, remedy)


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
