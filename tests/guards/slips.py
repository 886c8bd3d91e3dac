"""Changes one place of what a cluster renders, and says what the guards find then."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

from megatron_eks.config.errors import Finding
from megatron_eks.guards.check import check_manifests, check_templates
from tests import emitted
from tests.slips import population

# A template or an object as JSON, which has no narrower type.
Json = Any

ABSENT = object()
"""Instead of a value: the slip is that it is missing."""


def templates(cluster: str = emitted.DEFAULT) -> dict[str, Json]:
    """Return a cluster's templates, by stack."""
    return population.templates(cluster)


@cache
def manifests(cluster: str = emitted.DEFAULT) -> list[Json]:
    """Return the objects of a cluster's platform, its validation and its jobs."""
    files = emitted.emitted(cluster).manifests
    return [each for file in files for each in population.objects(cluster, file)]


def in_template(
    resource: str, path: str, value: object, cluster: str = emitted.DEFAULT
) -> set[str]:
    """Change a place of a resource, and return the names of the codes that are found.

    The resource is a type, `EC2::LaunchTemplate`, or a type and a part of a logical id,
    `EC2::LaunchTemplate Pool`; the first one counts. The path's keys stand between spaces and begin
    below its properties, or with a key of the resource itself (`DeletionPolicy`). A function makes
    the new value from the old one.
    """
    changed = deepcopy(templates(cluster))
    kind, _, part = resource.partition(" ")
    body = next(
        each
        for template in changed.values()
        for name, each in template["Resources"].items()
        if each["Type"] == f"AWS::{kind}" and part in name
    )
    change(
        body if path.split(maxsplit=1)[0] in body else body.setdefault("Properties", {}),
        path,
        value,
    )
    return _codes(check_templates(changed))


def in_stack(
    part: str, change: Callable[[dict[str, Json]], dict[str, Json]], cluster: str = emitted.DEFAULT
) -> set[str]:
    """Change the resources of a stack, `Storage`, and return the names of the codes found."""
    stack = templates(cluster)[part]
    changed = {**stack, "Resources": change(deepcopy(stack["Resources"]))}
    return _codes(check_templates({**templates(cluster), part: changed}))


def in_manifest(name: str, path: str, value: object, cluster: str = emitted.DEFAULT) -> set[str]:
    """Change a place of an object, `Kind/name`, and return the names of the codes that are found.

    The path's keys stand between spaces: `spec nodeSelector megatron-eks/pool`. Of several objects
    of that name the first one counts.
    """
    return in_objects(manifests(cluster), name, path, value)


def in_objects(objects: list[Json], name: str, path: str, value: object) -> set[str]:
    """Change a place of one of some objects, and return the names of the codes that are found."""
    titles = [f"{each['kind']}/{each['metadata']['name']}" for each in objects]
    changed = deepcopy(objects[index := titles.index(name)])
    change(changed, path, value)
    return _codes(check_manifests([*objects[:index], changed, *objects[index + 1 :]]))


def in_ranks(job: str, path: str, value: object, cluster: str = emitted.DEFAULT) -> set[str]:
    """Change a place in the pods of all ranks of a PyTorchJob, and return the codes' names."""
    objects = list(manifests(cluster))
    index = next(at for at, each in enumerate(objects) if each["metadata"]["name"] == job)
    objects[index] = deepcopy(objects[index])
    for replica in objects[index]["spec"]["pytorchReplicaSpecs"].values():
        change(replica["template"]["spec"], path, value)
    return _codes(check_manifests(objects))


def without(name: str, cluster: str = emitted.DEFAULT) -> set[str]:
    """Leave out a whole object, and return the names of the codes that are found."""
    kept = [e for e in manifests(cluster) if f"{e['kind']}/{e['metadata']['name']}" != name]
    assert len(kept) < len(manifests(cluster))
    return _codes(check_manifests(kept))


def change(body: Json, path: str, value: object) -> None:
    """Change a place in a body in place."""
    *parents, last = path.split()
    for key in parents:
        body = body[int(key) if isinstance(body, list) else key]
    where: Json = int(last) if isinstance(body, list) else last
    if value is ABSENT:
        del body[where]
    else:
        old = body.get(where) if isinstance(body, dict) else body[where]
        body[where] = value(deepcopy(old)) if callable(value) else value


def _codes(found: list[Finding]) -> set[str]:
    return {finding.code.name for finding in found}
