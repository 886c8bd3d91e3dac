"""Which keys the models know, and where: for the remedy of a key that stands in the wrong place."""

from collections.abc import Iterable, Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from megatron_eks.config.errors import Path
from megatron_eks.config.load import Json

# Words that mean something else in each block.
_ANYWHERE = frozenset({"enabled", "id", "name", "path", "size", "type"})


def elsewhere(model: type[BaseModel], path: Path) -> str | None:
    """Say where a key belongs that stands in the wrong block; None where it is no key at all."""
    name = str(path[-1])
    if name in _ANYWHERE:
        return None
    found = (home for home, block in blocks(model) if name in block.model_fields)
    homes = list(dict.fromkeys(".".join(map(str, home)) for home in found if 0 not in home))
    if "" in homes:
        return f"it belongs to the top of the file: {name}"
    return f"it belongs below {' or '.join(homes)}: {homes[0]}.{name}" if homes else None


def blocks(part: Any, path: Path = ()) -> Iterator[tuple[Path, type[BaseModel]]]:  # noqa: ANN401 -- an annotation of any shape
    """Yield the models of a file's blocks by their paths, with 0 for every entry of a list."""
    if isinstance(part, type) and issubclass(part, BaseModel):
        yield path, part
        for key, field in part.model_fields.items():
            yield from blocks(field.annotation, (*path, key))
    else:
        inner = (*path, 0) if get_origin(part) is tuple else path
        for option in get_args(part):
            yield from blocks(option, inner)


def _members(model: type[BaseModel], path: Path) -> list[type[BaseModel]]:
    """Return the models that a value at a path may have the form of; of a list its entries'."""
    keys = [part for part in path if isinstance(part, str)]
    return [member for place, member in blocks(model) if [e for e in place if e != 0] == keys]


def fields_at(model: type[BaseModel], path: Path, value: Json) -> set[str]:
    """List the keys allowed at a path of a file's value, whatever unions lie on the way.

    Of members that a `type` tells apart, those of the one that the value names.
    """
    members = _members(model, path)
    named = [each for each in members if value_at(value, (*path, "type")) in _types(each)]
    return {name for each in named or members for name in each.model_fields}


def block_at(model: type[BaseModel], path: Path) -> dict[str, bool]:
    """List the keys of the block that belongs at a path, and whether each must be given.

    Of a list the keys of its entries; none where kinds of blocks differ, or a text belongs.
    """
    members = _members(model, path)
    if len(members) != 1:
        return {}
    return {name: field.is_required() for name, field in members[0].model_fields.items()}


def pattern_at(model: type[BaseModel], path: Path) -> str | None:
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


def other_types(model: type[BaseModel], path: Path, value: Json) -> str | None:
    """Say of which `type` a key is that stands beside another one."""
    members = [e for e in _members(model, path[:-1]) if str(path[-1]) in e.model_fields]
    types = [f"type: {each}" for member in members for each in _types(member)]
    if not types or value_at(value, (*path[:-1], "type")) is None:
        return None
    return f"only {' and '.join(types)} {'has' if len(types) == 1 else 'have'} it"


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
