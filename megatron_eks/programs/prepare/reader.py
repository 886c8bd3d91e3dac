"""Reads the inputs of one process from end to end, as numbered blocks for the workers."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from megatron_eks.programs.prepare.inputs import Source, compression, local_file, unpacked
from megatron_eks.programs.prepare.job import Shard, failure


@dataclass(frozen=True)
class Block:
    """Whole lines of one input."""

    start: int
    """Offset in the input, before packing."""
    size: int
    data: bytes | None
    """None: a worker reads them by itself, from a plain local file."""
    name: str


@dataclass(frozen=True)
class Span:
    """What this process reads of one input: whole lines; of a packed input all or nothing."""

    source: int
    start: int
    end: int


@dataclass(frozen=True)
class Task:
    """A block, where it comes from, and how far the reading is."""

    span: int
    block: Block
    stored: int
    """Stored bytes of all spans that were read so far."""


def spans(sources: Sequence[Source], packing: Sequence[str | None], shard: Shard) -> list[Span]:
    """Divide the stored bytes of all inputs evenly; the parts, in order, are the whole.

    A line belongs to the shard in which it begins. There is no way into the middle of a packed
    input, so one belongs to the shard in which its first byte is.
    """
    total = sum(source.size for source in sources)
    low = total * shard.index // shard.count
    high = total * (shard.index + 1) // shard.count
    found = []
    begin = 0
    for number, source in enumerate(sources):
        if packing[number] is None:
            start, end = (
                line_start(source, min(max(limit - begin, 0), source.size)) for limit in (low, high)
            )
            if start < end:
                found.append(Span(number, start, end))
        elif low <= begin < high:
            found.append(Span(number, 0, source.size))
        begin += source.size
    return found


class Reader:
    """The spans of one process, cut into blocks."""

    def __init__(self, sources: Sequence[Source], shard: Shard | None) -> None:
        self.sources = sources
        self.packing = [compression(source) for source in sources]
        self.spans = spans(sources, self.packing, shard or Shard(0, 1))

    @property
    def size(self) -> int:
        """Stored bytes of all spans."""
        return sum(span.end - span.start for span in self.spans)

    def before(self, number: int, offset: int) -> int:
        """Return the stored bytes before a place; a packed input counts once it is through."""
        done = sum(span.end - span.start for span in self.spans[:number])
        if offset and self.packing[self.spans[number].source] is None:
            done += offset - self.spans[number].start
        return done

    def tasks(self, number: int, offset: int) -> Iterator[Task]:
        """Yield the blocks from a place on: a span's number and an offset in its input."""
        for place in range(number, len(self.spans)):
            yield from self._span(place, max(offset, self.spans[place].start))
            offset = 0

    def lines_before(self, number: int) -> int:
        """Count the lines before a span, which a shard needs to know for a bad line alone."""
        span = self.spans[number]
        return count_lines(self.sources[span.source].raw(0, span.start))

    def _span(self, number: int, offset: int) -> Iterator[Task]:
        span = self.spans[number]
        source, packing = self.sources[span.source], self.packing[span.source]
        done = self.before(number, offset)

        def counted(stored: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal done
            for chunk in stored:
                done += len(chunk)
                yield chunk

        chunks = counted(source.raw(offset if packing is None else 0, span.end))
        if packing is not None:
            chunks = unpacked(source, packing, chunks, offset)
        # A worker reads those of a file once more, which is cheaper than to send them there.
        is_plain = source.is_local and packing is None
        for start, data in blocks(chunks, offset, source.name):
            yield Task(
                number, Block(start, len(data), None if is_plain else data, source.name), done
            )
        if source.is_local and local_file(source.name) != source:
            raise failure(source.name, "it was changed while it was read", "start again")


BLOCK_BYTES = 4 << 20
LONGEST_LINE = 64 << 20
"""Bytes; of longer ones, or of a file that has no lines, the memory would run full."""

# A \r that is the last byte at hand may be half of \r\n.
_LINE_END = re.compile(rb"\r?\n|\r(?!\n|\Z)")


def blocks(chunks: Iterable[bytes], start: int, name: str) -> Iterator[tuple[int, bytes]]:
    """Cut a stream that begins at a line's start; yield where whole lines begin, and them."""
    pending = bytearray()
    for chunk in chunks:
        pending += chunk
        if len(pending) < BLOCK_BYTES:
            continue
        if cut := _last_line_end(pending):
            with memoryview(pending) as view:
                data = bytes(view[:cut])
            yield start, data
            start += cut
            del pending[:cut]
        elif len(pending) > LONGEST_LINE:
            found = f"the line that begins at byte {start} has more than {LONGEST_LINE} bytes"
            raise failure(name, found, "write one document a line; split or remove this one")
    if pending:
        yield start, bytes(pending)


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
