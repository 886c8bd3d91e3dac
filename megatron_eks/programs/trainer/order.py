"""The order of samples: one sequence for the whole job, whatever the number of ranks."""

from hashlib import blake2b

_ROUNDS = 4


class Shuffle:
    """A permutation of 0 to count - 1 that is computed, not stored: a billion samples need none.

    A Feistel network over the next even number of bits; what falls outside walks on until it is
    inside (format-preserving encryption by cycle walking, Black and Rogaway 2002).
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self._half = max(1, ((count - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        self._keys = [f"{seed} {number}".encode() for number in range(_ROUNDS)]

    def __getitem__(self, place: int) -> int:
        """Return what stands at a place."""
        while (place := self._turn(place)) >= self.count:
            pass
        return place

    def _turn(self, place: int) -> int:
        left, right = place >> self._half, place & self._mask
        for key in self._keys:
            digest = blake2b(right.to_bytes(8, "little"), digest_size=8, key=key).digest()
            left, right = right, left ^ (int.from_bytes(digest, "little") & self._mask)
        return left << self._half | right


def rank_samples(consumed: int, per_rank: int, rank: int, ranks: int) -> range:
    """Return the numbers of the samples that a rank takes in the next step.

    A step takes the next `per_rank * ranks` samples of the job; rank r takes every r-th, so that
    with other numbers of ranks the same samples make up the same step.
    """
    return range(consumed + rank, consumed + per_rank * ranks, ranks)
