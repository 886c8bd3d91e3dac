"""Which keys the models know, and where: for the remedy of a key that stands in the wrong place."""

from collections.abc import Iterable, Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from megatron_eks.config.errors import Path
from megatron_eks.config.load import Json

# Words that mean something else in each block.
_ANYWHERE = frozenset({"enabled", "id", "name", "path", "size", "type"})


def elsewhere(model: Any, path: Path) -> str | None:  # noqa: ANN401 -- an annotation of any shape
    """Say where a key belongs that stands in the wrong block; None where it is no key at all."""
    name = str(path[-1])
    if name in _ANYWHERE:
        return None
    homes = list(dict.fromkeys(".".join(home) for home in _homes(model, name)))
    if "" in homes:
        return f"it belongs to the top of the file: {name}"
    return f"it belongs below {' or '.join(homes)}: {homes[0]}.{name}" if homes else None


def _homes(model: Any, name: str) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 -- an annotation of any shape
    """Yield the blocks that have a key, by their names from the top; not those in lists."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        if name in model.model_fields:
            yield ()
        for key, field in model.model_fields.items():
            yield from ((key, *home) for home in _homes(field.annotation, name))
    elif get_origin(model) is not tuple:
        for option in get_args(model):
            yield from _homes(option, name)


def fields_at(model: Any, path: Path, value: Json) -> set[str]:  # noqa: ANN401 -- an annotation of any shape
    """List the keys allowed at a path of a file's value, whatever unions lie on the way.

    Of members that a `type` tells apart, those of the one that the value names.
    """
    members = list(_members(model, path))
    named = [each for each in members if value_at(value, (*path, "type")) in _types(each)]
    return {name for each in named or members for name in each.model_fields}


def block_at(model: Any, path: Path) -> dict[str, bool]:  # noqa: ANN401 -- an annotation of any shape
    """List the keys of the block that belongs at a path, and whether each must be given.

    Of a list the keys of its entries; none where kinds of blocks differ, or a text belongs.
    """
    members = list(_members(model, path))
    if len(members) != 1:
        return {}
    return {name: field.is_required() for name, field in members[0].model_fields.items()}


def pattern_at(model: Any, path: Path) -> str | None:  # noqa: ANN401 -- an annotation of any shape
    """Return the pattern that a text at a path must have."""
    *block, name = path[:-1] if isinstance(path[-1], int) else path
    for member in _members(model, tuple(block)):
        if field := member.model_fields.get(str(name)):
            return next(_patterns((*field.metadata, field.annotation)), None)
    return None


def _patterns(parts: Iterable[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(pattern := getattr(part, "pattern", None), str):
            yield pattern
        yield from _patterns((*getattr(part, "metadata", ()), *get_args(part)))


def other_types(model: Any, path: Path, value: Json) -> str | None:  # noqa: ANN401 -- an annotation of any shape
    """Say of which `type` a key is that stands beside another one."""
    members = [e for e in _members(model, path[:-1]) if str(path[-1]) in e.model_fields]
    types = [f"type: {each}" for member in members for each in _types(member)]
    if not types or value_at(value, (*path[:-1], "type")) is None:
        return None
    return f"only {' and '.join(types)} {'has' if len(types) == 1 else 'have'} it"


def _members(model: Any, path: Path) -> Iterator[type[BaseModel]]:  # noqa: ANN401 -- an annotation of any shape
    """Yield the models that a value at a path may have the form of."""
    if isinstance(model, type) and issubclass(model, BaseModel):
        if not path:
            yield model
        elif field := model.model_fields.get(str(path[0])):
            yield from _members(field.annotation, path[1:])
        return
    for option in get_args(model):
        yield from _members(option, path[1:] if path and isinstance(path[0], int) else path)


def value_at(value: Json, path: Path) -> Json:
    """Return what stands at a path of a file's value."""
    for part in path:
        if isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            value = value.get(str(part)) if isinstance(value, dict) else None
    return value


def _types(member: type[BaseModel]) -> tuple[str, ...]:
    """Return the words that tell a member of a union from the others."""
    tag = member.model_fields.get("type")
    return get_args(tag.annotation) if tag is not None else ()


def data_path(loc: tuple[int | str, ...], value: Json) -> Path:
    """Drop what pydantic adds to a location: tags of unions and names of union members."""
    path: list[int | str] = []
    for index, part in enumerate(loc):
        is_member = str(part)[:1] == "<" or part in {"bool", "float", "int", "str"}
        if isinstance(value, dict) and part in value:
            value = value[str(part)]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        elif index != len(loc) - 1 or not isinstance(value, dict) or is_member:
            continue
        path.append(part)
    return tuple(path)
