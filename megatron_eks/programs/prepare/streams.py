"""The bytes of an input as they were before they were packed, with the place of a truncation."""

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from megatron_eks.programs.prepare.inputs import Source
from megatron_eks.programs.prepare.job import failure

# A zstd block of four bytes can stand for 128 KiB, so small pieces keep the memory bounded.
_PIECE_BYTES = {"gzip": 64 << 10, "zstd": 4 << 10}


class _Unpacker(Protocol):
    """What zlib and zstandard have in common."""

    @property
    def eof(self) -> bool:
        """Whether the end of the member or frame was seen."""

    @property
    def unused_data(self) -> bytes:
        """What came after that end."""

    def decompress(self, data: bytes, /) -> bytes:
        """Unpack what can be unpacked so far."""


Watch = Callable[[bytes], None]


def unpacked(
    source: Source, packing: str | None, start: int, end: int, watch: Watch
) -> Iterator[bytes]:
    """Yield an input from `start`, an offset before packing; `watch` sees the stored bytes.

    `end` counts for plain inputs alone: there is no way into the middle of a packed one.
    """
    if packing is None:
        yield from _watched(source.raw(start, end), watch)
        return
    skip = start
    for data in _members(source, packing, watch):
        yield data[skip:]
        skip = max(0, skip - len(data))


def _watched(chunks: Iterator[bytes], watch: Watch) -> Iterator[bytes]:
    for chunk in chunks:
        watch(chunk)
        yield chunk


def _members(source: Source, packing: str, watch: Watch) -> Iterator[bytes]:
    """Unpack member after member, as `gzip -d` and `zstd -d` do."""
    unpacker: _Unpacker | None = None
    done = 0
    for chunk in _watched(source.raw(0, source.size), watch):
        for place in range(0, len(chunk), _PIECE_BYTES[packing]):
            piece = chunk[place : place + _PIECE_BYTES[packing]]
            while piece:
                if unpacker is None:
                    # Zeros after a member are padding, of tapes once and of object stores now.
                    piece = piece.lstrip(b"\0")
                    if not piece:
                        break
                    unpacker = _unpacker(packing)
                try:
                    data = unpacker.decompress(piece)
                except Exception as problem:
                    raise _broken(source, packing, done, f"is damaged ({problem})") from problem
                done += len(data)
                yield data
                piece = unpacker.unused_data if unpacker.eof else b""
                if unpacker.eof:
                    unpacker = None
    if unpacker is not None:
        raise _broken(source, packing, done, "ends too early: it was truncated")


def _broken(source: Source, packing: str, done: int, what: str) -> Exception:
    return failure(
        source.name,
        f"the {packing} data {what}, after {done} unpacked bytes",
        "fetch or write this input again; nothing was written under the final names",
    )


def _unpacker(packing: str) -> _Unpacker:
    if packing == "gzip":
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    import zstandard  # noqa: PLC0415 -- only this kind of input needs it

    unpacker: _Unpacker = zstandard.ZstdDecompressor().decompressobj()
    return unpacker
