"""Reads blocks of JSON lines as Megatron's tool would, and says of each other line what is wrong.

Megatron-LM reads text files with universal line ends, then json.loads, then the tokenizer; what
any of the three refuses is a bad line here (tools/preprocess_data.py, core_v0.19.0).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

try:
    from orjson import loads as _quick_loads
except ImportError:

    def _quick_loads(_line: bytes) -> object:
        """Leave every line to the standard library, which decides all but the ordinary ones."""
        raise ValueError


Document = str | list[str]
"""One text; or several sequences that Megatron keeps apart inside one document."""


class _BadLineError(Exception):
    """A line gives no document, for a reason."""


@dataclass
class Texts:
    """What one block holds."""

    lines: int = 0
    documents: list[list[Document]] = field(default_factory=list)
    """For each JSON key, one entry a document."""
    bad: list[tuple[int, str]] = field(default_factory=list)
    """Line in the block, and the reason."""


def read(data: bytes, keys: Sequence[str]) -> Texts:
    """Read the documents of a block; a line that lacks one key is bad for all."""
    lines = data.splitlines()
    texts = Texts(len(lines), [[] for _ in keys])
    for number, line in enumerate(lines):
        try:
            found = _documents(line, keys)
        except _BadLineError as problem:
            texts.bad.append((number, str(problem)))
            continue
        for documents, document in zip(texts.documents, found, strict=True):
            documents.append(document)
    return texts


def _documents(line: bytes, keys: Sequence[str]) -> list[Document]:
    try:
        content = _quick_loads(line)
    except ValueError:
        content = _slow_loads(line)
    if not isinstance(content, dict):
        raise _BadLineError(f"not a JSON object but {_kind(content)}")
    missing = [key for key in keys if key not in content]
    if missing:
        raise _BadLineError(f"no key {', '.join(map(repr, missing))}")
    return [_document(key, content[key]) for key in keys]


def _slow_loads(line: bytes) -> object:
    """Parse as Megatron does: Python's JSON is wider than the standard, in NaN for instance."""
    if not line.strip(b" \t"):
        raise _BadLineError("an empty line")
    try:
        text = line.decode()
    except UnicodeDecodeError as problem:
        raise _BadLineError(f"not UTF-8 at byte {problem.start}: {problem.reason}") from problem
    if text.startswith("\ufeff"):
        raise _BadLineError("begins with a byte order mark, which JSON has not")
    try:
        return json.loads(text)
    except RecursionError as problem:
        raise _BadLineError("nested too deeply") from problem
    except json.JSONDecodeError as problem:
        raise _BadLineError(f"not JSON: {problem.msg} at character {problem.pos}") from problem
    except ValueError as problem:
        raise _BadLineError(f"not JSON that Python reads: {problem}") from problem


def _document(key: str, value: object) -> Document:
    if isinstance(value, str):
        _check(key, value)
        return value
    if not isinstance(value, list):
        raise _BadLineError(f"{key!r} is {_kind(value)}, not a text")
    for item in value:
        if not isinstance(item, str):
            raise _BadLineError(f"{key!r} holds {_kind(item)} among its texts")
        _check(key, item)
    return value


def _check(key: str, text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise _BadLineError(
            f"{key!r} has a lone surrogate at character {problem.start}"
        ) from problem


def _kind(value: object) -> str:
    names = {type(None): "null", bool: "a boolean", int: "a number", float: "a number"}
    names |= {str: "a text", list: "a list", dict: "an object"}
    return names[type(value)]
