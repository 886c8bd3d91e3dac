"""Megatron's indexed data sets, as far as a look at sizes and headers can tell a good one.

Layout: megatron/core/datasets/indexed_dataset.py, Megatron core 0.19.
"""

import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO

from megatron_eks.programs.program import Finding, error, usage_error

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
"""Of a token by the index's type code (DType), as numpy calls it, with its bytes at the end."""
HEADER = struct.Struct("<9sQBQQ")
"""Magic, version, type code, sequences, and document boundaries, which are one more."""

_OBJECT_STORES = ("s3://", "msc://")
_PARTS = ("training", "validation", "test")
_AGAIN = "prepare the data set again"


class BadDataSetError(Exception):
    """The two files of a data set cannot be what was written."""


@dataclass(frozen=True)
class DataSet:
    """One data set that passed."""

    prefix: str
    documents: int
    tokens: int
    sequences: int


def blend_prefixes(words: Sequence[str]) -> tuple[tuple[str, ...], list[Finding]]:
    """Split the words of a data option, which Megatron reads as weights and prefixes if even."""
    if len(words) % 2 == 1:
        return tuple(words), []
    found = [
        usage_error(
            "--data-path",
            f"{weight!r} stands where a weight belongs",
            "write WEIGHT PREFIX pairs, or an odd number of prefixes",
        )
        for weight in words[::2]
        if not _is_number(weight)
    ]
    return tuple(words[1::2]), found


def check_prefix(prefix: str, good: list[DataSet]) -> Iterator[Finding]:
    """Check one data set, and append it to `good` if nothing is wrong with it."""
    if prefix.startswith(_OBJECT_STORES):
        return
    if prefix.endswith((".bin", ".idx")):
        yield error(prefix, "this names a file", f"name the prefix: {prefix[:-4]}")
        return
    missing = [suffix for suffix in (".bin", ".idx") if not Path(prefix + suffix).is_file()]
    if missing:
        names = " and ".join(prefix + suffix for suffix in missing)
        yield error(prefix, f"no file {names}", "prepare the data, or correct the prefix")
        return
    try:
        good.append(read_data_set(prefix))
    except (BadDataSetError, OSError) as problem:
        yield error(f"{prefix}.idx", str(problem), _AGAIN)


def read_data_set(prefix: str) -> DataSet:
    """Read the header and the last entries of an index, and compare them with both files' sizes."""
    with Path(f"{prefix}.idx").open("rb") as index:
        size = os.fstat(index.fileno()).st_size
        item, sequences, boundaries = _read_header(index, size)
        lengths = HEADER.size
        pointers = lengths + 4 * sequences
        documents = pointers + 8 * sequences
        end = documents + 8 * boundaries
        # A multimodal index has one more byte a sequence.
        if size not in {end, end + sequences}:
            raise BadDataSetError(
                f"{size} bytes, but {sequences} sequences and {boundaries} document boundaries "
                f"take {end}"
            )
        first = _read_integer(index, documents, "<q")
        last = _read_integer(index, documents + 8 * (boundaries - 1), "<q")
        if (first, last) != (0, sequences):
            raise BadDataSetError(
                f"documents span sequences {first} to {last}, but there are {sequences}"
            )
        tail = _read_integer(index, pointers + 8 * (sequences - 1), "<q")
        expected = tail + item * _read_integer(index, lengths + 4 * (sequences - 1), "<i")
    tokens = Path(f"{prefix}.bin").stat().st_size
    if tokens != expected:
        raise BadDataSetError(
            f"it describes {expected} bytes of tokens, the .bin file has {tokens}"
        )
    return DataSet(prefix, boundaries - 1, tokens // item, sequences)


def check_split(ratios: str, data_set: DataSet) -> Iterator[Finding]:
    """Find parts of a split that get no sequence: Megatron counts their epochs for ever.

    Parts end at rounded shares of the sequences, as in
    megatron/core/datasets/blended_megatron_dataset_builder.py.
    """
    shares = [float(number) for number in re.findall(r"\d*\.?\d+", ratios)]
    total = sum(shares)
    if not total:
        yield usage_error("--split", f"{ratios!r} has no share above 0", "write it as 98,2,0")
        return
    ends = [0, *(round(end * data_set.sequences) for end in accumulate(x / total for x in shares))]
    for name, share, (start, end) in zip(_PARTS, shares, pairwise(ends), strict=False):
        if share and start == end:
            part = f"{share:g} of {total:g} shares of {data_set.sequences} sequences"
            found = f"--split {ratios} leaves nothing for {name}: {part}"
            remedy = f"give {name} a larger share or 0, or prepare more documents"
            yield error(data_set.prefix, found, remedy)


def _read_header(index: BinaryIO, size: int) -> tuple[int, int, int]:
    if size < HEADER.size:
        raise BadDataSetError(f"{size} bytes are less than a header")
    magic, version, code, sequences, boundaries = HEADER.unpack(index.read(HEADER.size))
    if magic != MAGIC:
        raise BadDataSetError("it does not begin as an index does")
    if version != VERSION:
        raise BadDataSetError(f"index version {version}, but Megatron reads {VERSION}")
    if code not in TYPES:
        raise BadDataSetError(f"unknown type code {code}")
    if sequences == 0 or boundaries <= 1:
        raise BadDataSetError("it holds no document")
    return int(TYPES[code][-1]), sequences, boundaries


def _read_integer(index: BinaryIO, offset: int, layout: str) -> int:
    index.seek(offset)
    (value,) = struct.unpack(layout, index.read(struct.calcsize(layout)))
    return int(value)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
