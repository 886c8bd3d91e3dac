"""An indexed data set as the file system holds it, a part in memory at a time."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from megatron_eks.programs.prepare.indexed_data import HEADER, TYPES

Array: TypeAlias = "np.ndarray[Any, Any]"
ROWS = 1 << 20
"""Entries that are in memory at once."""


class Index:
    """An index and its tokens."""

    def __init__(self, prefix: str) -> None:
        path = Path(f"{prefix}.idx")
        with path.open("rb") as file:
            *_, code, sequences, boundaries = HEADER.unpack(file.read(HEADER.size))
        self.documents: int = boundaries - 1
        self.token_type = np.dtype(TYPES[code])
        at = HEADER.size + 4 * sequences
        self.lengths = np.memmap(path, "<i4", "r", HEADER.size, (sequences,))
        self.pointers = np.memmap(path, "<i8", "r", at, (sequences,))
        self.boundaries = np.memmap(path, "<i8", "r", at + 8 * sequences, (boundaries,))
        tokens = Path(f"{prefix}.bin").stat().st_size // self.token_type.itemsize
        self.tokens = np.memmap(f"{prefix}.bin", self.token_type, "r") if tokens else np.empty(0)


def parts(array: Array, *, shared: int = 0) -> Iterator[Array]:
    """Yield an array in parts, each of which shares entries with the next."""
    for place in range(0, len(array) - shared, ROWS):
        yield array[place : place + ROWS + shared]


def running_sums(rows: Iterable[Array], factor: int) -> Iterator[Array]:
    """Yield the sums before each entry and, last, after the last one; rows at a time."""
    total = 0
    for row in rows:
        sums = np.empty(len(row) + 1, "<i8")
        sums[0] = total
        np.cumsum(row, dtype="<i8", out=sums[1:])
        sums[1:] *= factor
        sums[1:] += total
        total = int(sums[-1])
        yield sums
