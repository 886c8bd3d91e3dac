"""The public schemas of resource types, as the cfn-lint package carries them.

Which properties there are, in which form, and which cannot change without a new resource:
https://docs.aws.amazon.com/cloudformation-cli/latest/userguide/resource-type-schema.html
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import jsonschema

from megatron_eks.localcloud.aws.patterns import matches
from megatron_eks.localcloud.aws.values import Object, Value

_PREFIX = "/properties/"


@cache
def _folder() -> Path:
    # The package's own code takes seconds to import, and none of it is needed.
    spec = find_spec("cfnlint")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the cfn-lint package is missing - run: make setup-dev")
    return Path(spec.submodule_search_locations[0]) / "data" / "schemas"


@cache
def _files(region: str) -> dict[str, str]:
    index: dict[str, str] = json.loads((_folder() / "providers" / f"{region}.json").read_text())
    return index


@cache
def schema(region: str, kind: str) -> Object | None:
    """Return the schema of a resource type, or None where the region has no such type."""
    name = _files(region).get(kind)
    if name is None:
        return None
    read: Object = json.loads((_folder() / "resources" / f"{name}.json").read_text())
    return read


def _paths(region: str, kind: str, name: str) -> list[tuple[str, ...]]:
    """Return the paths of properties that a schema lists under a name."""
    found = schema(region, kind) or {}
    return [tuple(path.removeprefix(_PREFIX).split("/")) for path in found.get(name, [])]


def changed_paths(old: Value, new: Value, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield where two values differ, as deep as both are objects."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from changed_paths(old.get(key), new.get(key), (*path, key))
    elif old != new:
        yield path


def is_create_only(region: str, kind: str, path: tuple[str, ...]) -> bool:
    """Tell whether a change at a path asks for a new resource."""
    return any(
        path[: len(only)] == only or only[: len(path)] == path
        for only in _paths(region, kind, "createOnlyProperties")
    )


def _pattern(
    validator: Value, pattern: str, instance: Value, schema: Object
) -> Iterator[jsonschema.ValidationError]:
    del validator, schema
    if isinstance(instance, str) and not matches(pattern, instance):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


_extend: Callable[..., Value] = jsonschema.validators.extend
_Validator = _extend(jsonschema.Draft7Validator, {"pattern": _pattern})


@cache
def _validator(region: str, kind: str) -> Value:
    found = schema(region, kind)
    return None if found is None else _Validator(found)


def mistakes(region: str, kind: str, properties: Object) -> list[str]:
    """Return what a type's schema forbids, in the words that CloudFormation uses."""
    validator = _validator(region, kind)
    if validator is None:
        return []
    return [
        f"#/{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in validator.iter_errors(properties)
    ]


def identifiers(region: str, kind: str) -> list[str]:
    """Return the names of the properties that identify a resource of a type."""
    return ["/".join(path) for path in _paths(region, kind, "primaryIdentifier")]
