"""What a support bundle shows of the project's files: keys, and the values of known ones."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import yaml
from pydantic import TypeAdapter

from megatron_eks.catalog import shown
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.job import AnyJob
from megatron_eks.ops.support.arguments import Hide, shown_arguments

Path = tuple[str, ...]
# A JSON Schema, and PyYAML's nodes.
_Any = Any

_DEEPEST = 100
# Their keys are zones and instance types.
_BY_PLACE = frozenset({"private_subnets", "instance_hour"})
_COMMENT = re.compile(r"#[^\n]*")
_BROKEN_LINE = re.compile(r"(?P<key>\s*(?:-\s+)*[A-Za-z_][\w-]*:)?(?P<value>.*)")


def is_setting(path: Path) -> bool:
    """Tell whether a value of a cluster or job file is one that the project defines."""
    known, free = _keys()
    names = (key for before, key in pairwise(("", *path)) if before not in _BY_PLACE)
    return known.issuperset(names) and free.isdisjoint(path)


def is_output(path: Path) -> bool:
    """Tell whether a value of `outputs.json` is one of our stacks'."""
    return len(path) == len(("stack", "output")) and bool(shown.OUTPUTS.fullmatch(path[-1]))


def shown_file(text: str, is_shown: Callable[[Path], bool], hide: Hide) -> str:
    """Return YAML or JSON, line by line as it was, without comments and others' values."""
    try:
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        reader = _Reader(is_shown, hide)
        found = {place for root in roots if root for place in reader.places(root, ())}
    except (yaml.YAMLError, RecursionError):
        return "".join(_broken(line, hide) for line in text.splitlines(keepends=True))
    out, end = "", 0
    # Of two ways to one place, as aliases are, the one that hides comes first.
    for start, stop, instead in sorted(found, key=lambda each: (each[:2], each[2] is None)):
        if start < end:
            continue
        out += _COMMENT.sub(lambda comment: f"# {hide(comment[0])}", text[end:start])
        raw = text[start:stop]
        # The line ends of a block belong to it.
        out += raw if instead is None else instead + raw[len(raw.rstrip()) :]
        end = stop
    return out + _COMMENT.sub(lambda comment: f"# {hide(comment[0])}", text[end:])


@cache
def _keys() -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys that the models define, and those that hold what people name themselves."""
    known: set[str] = set()
    free = {"extra_args"}
    for schema in (ClusterConfig.model_json_schema(), TypeAdapter(AnyJob).json_schema()):
        for block in (schema, *schema["$defs"].values()):
            for key, value in block.get("properties", {}).items():
                known.add(key)
                if value.get("additionalProperties") and key not in _BY_PLACE:
                    free.add(key)
    return frozenset(known), frozenset(free)


class _Reader:
    """Finds the scalars of a document, and what stands instead of those that go."""

    def __init__(self, is_shown: Callable[[Path], bool], hide: Hide) -> None:
        self._is_shown, self._hide = is_shown, hide
        self._seen: set[tuple[int, Path]] = set()

    def places(self, node: _Any, path: Path) -> Iterator[tuple[int, int, str | None]]:
        """Yield beginning, end, and what stands there instead, if anything does."""
        if (id(node), path) in self._seen or len(path) > _DEEPEST:
            return
        self._seen.add((id(node), path))
        if isinstance(node, yaml.ScalarNode):
            goes = node.value and not self._is_shown(path)
            variable = path[-1] if "env" in path else ""
            yield *_span(node), self._hide(node.value, variable) if goes else None
        elif isinstance(node, yaml.SequenceNode) and path[-1:] == ("extra_args",):
            words = [str(each.value) for each in node.value]
            kept = shown_arguments(words, self._hide, ours=frozenset())
            for each, instead in zip(node.value, kept, strict=True):
                yield *_span(each), instead
        elif isinstance(node, yaml.SequenceNode):
            for inner in node.value:
                yield from self.places(inner, path)
        else:
            for key, inner in node.value:
                is_name = isinstance(key, yaml.ScalarNode)
                yield *_span(key), None if is_name else self._hide(str(key.value))
                yield from self.places(inner, (*path, str(key.value) if is_name else ""))


def _span(node: _Any) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index


def _broken(line: str, hide: Hide) -> str:
    """Return a line of what is no YAML: of its text only the key."""
    match = _BROKEN_LINE.match(line)
    assert match is not None  # noqa: S101 -- every line has both parts, empty or not
    value = match["value"].strip()
    return (match["key"] or "") + (f" {hide(value)}" if value else "") + line[match.end() :]
