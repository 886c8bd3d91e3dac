r"""Cuts a stream into blocks of whole lines, however long a line is.

Lines end as Python's text files end them: with \n, \r\n or \r, and the file's last one may not.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from megatron_eks.programs.prepare.inputs import Source

BLOCK_BYTES = 4 << 20

# A \r that is the last byte at hand may be half of \r\n.
_LINE_END = re.compile(rb"\r?\n|\r(?!\n|\Z)")


@dataclass(frozen=True)
class Block:
    """Whole lines of one input; or one line that is too long, without its bytes."""

    start: int
    """Offset in the input, before packing."""
    size: int
    data: bytes | None = None
    path: str | None = None
    """A plain local file that the worker reads by itself."""

    @property
    def too_long(self) -> bool:
        """Whether it is one line that nobody reads."""
        return self.data is None and self.path is None


def blocks(chunks: Iterable[bytes], start: int, max_line_bytes: int) -> Iterator[Block]:
    """Cut a stream that begins at a line's start; holds one line or block at a time."""
    pending = bytearray()
    skipped = 0
    for chunk in chunks:
        pending += chunk
        if skipped:
            end = _LINE_END.search(pending)
            # The last byte stays: it may be half of a line end.
            drop = end.end() if end else max(0, len(pending) - 1)
            skipped += drop
            del pending[:drop]
            if end is None:
                continue
            yield Block(start, skipped)
            start += skipped
            skipped = 0
        if len(pending) >= BLOCK_BYTES:
            cut = _last_line_end(pending)
            if cut:
                with memoryview(pending) as view:
                    data = bytes(view[:cut])
                yield Block(start, cut, data)
                start += cut
                del pending[:cut]
            elif len(pending) > max_line_bytes + 1:
                skipped = len(pending) - 1
                del pending[:-1]
    if skipped:
        yield Block(start, skipped + len(pending))
    elif pending:
        yield Block(start, len(pending), bytes(pending))


def line_start(source: Source, offset: int) -> int:
    """Return where the first line begins that does not begin before `offset`."""
    if offset in {0, source.size}:
        return offset
    place = offset - 1
    pending = b""
    for chunk in source.raw(place, source.size):
        pending += chunk
        end = _LINE_END.search(pending)
        if end:
            return place + end.end()
        place += len(pending) - 1
        pending = pending[-1:]
    return source.size


def count_lines(chunks: Iterable[bytes]) -> int:
    """Return how many lines end in a stream of whole lines."""
    lines = 0
    after_return = False
    for chunk in chunks:
        lines += chunk.count(b"\n") + chunk.count(b"\r") - chunk.count(b"\r\n")
        lines -= after_return and chunk.startswith(b"\n")
        after_return = chunk.endswith(b"\r")
    return lines


def _last_line_end(buffer: bytearray) -> int:
    """Return the offset after the last line end that is surely whole, 0 if there is none."""
    newline = buffer.rfind(b"\n") + 1
    # Without any \n, a \r before another byte is a line end of its own.
    return newline or buffer.rfind(b"\r", 0, len(buffer) - 1) + 1
