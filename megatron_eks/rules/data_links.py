"""Rules over the data repository associations that one file system has together."""

import json
from collections.abc import Iterator
from itertools import combinations

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.load import Json
from megatron_eks.rules.template_set import Resource, TemplateSet
from megatron_eks.rules.values import is_absent, shown, written

_OVERLAPS = (
    ("FileSystemPath", "path", "give each a directory of its own"),
    ("DataRepositoryPath", "prefix", "use prefixes of which none holds another"),
)


def overlaps(templates: TemplateSet) -> Iterator[Finding]:
    """Refuse associations of one file system that hold each other, in the file system or in S3.

    FSx for Lustre User Guide, "Linking your file system to an Amazon S3 bucket": two data
    repository associations cannot have overlapping file system paths, nor overlapping data
    repository paths; s3://bucket/prefix stands for s3://bucket/prefix/.
    """
    links = list(templates.resources("AWS::FSx::DataRepositoryAssociation"))
    for key, what, remedy in _OVERLAPS:
        for first, second in combinations(links, 2):
            one, other = _folder(first, key), _folder(second, key)
            if one is None or other is None or not _on_one_system(first, second, templates):
                continue
            if one.startswith(other) or other.startswith(one):
                value = shown(written(second.properties.get(key)))
                found = f"{value} overlaps the {what} of {first.id}: FSx refuses one of them"
                yield second.find(Code.DATA_REPOSITORY, (key,), found, remedy)


def _folder(link: Resource, key: str) -> str | None:
    """Return a path, closed by a slash; None when a part of it means something else elsewhere."""
    value: Json = link.properties.get(key)
    # Names of its own, which another text may give to something else.
    renamed = isinstance(value, dict) and isinstance(value.get("Fn::Sub"), list)
    path = None if renamed else written(value)
    if not path or "${}" in path:
        return None
    return f"{path.rstrip('/')}/"


def _on_one_system(first: Resource, second: Resource, templates: TemplateSet) -> bool:
    """Tell whether both are made, and belong to one file system."""
    conditions = {text for each in (first, second) if (text := str(each.body.get("Condition")))}
    either = len(conditions) > 1 and "None" not in conditions
    systems = [each.properties.get("FileSystemId") for each in (first, second)]
    if either or any(is_absent(each) for each in systems):
        return False
    one, other = (
        templates.target(value, each.file)
        for value, each in zip(systems, (first, second), strict=True)
    )
    if one is not None or other is not None:
        return one is other
    # A parameter of one template may differ from that of another one.
    same = json.dumps(systems[0]) == json.dumps(systems[1])
    return same and (first.file == second.file or isinstance(systems[0], str))
