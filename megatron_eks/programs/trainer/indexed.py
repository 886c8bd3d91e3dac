"""Samples from one of Megatron's indexed data sets: windows over its tokens, shuffled."""

import numpy as np
import torch
from torch import Tensor

from megatron_eks.programs.prepare.index import Index
from megatron_eks.programs.trainer.order import Shuffle

# Of the windows, the last part is for validation.
_HELD_OUT = 20


class IndexedSamples:
    """Windows of sequence length + 1 tokens; neighbours share one, which is the label of one."""

    def __init__(self, prefix: str, length: int, seed: int) -> None:
        self._tokens = Index(prefix).tokens
        self._length = length
        self._seed = seed
        windows = (len(self._tokens) - 1) // length
        if windows < 1:
            raise ValueError(
                f"{prefix}: {len(self._tokens)} tokens are less than one sequence of {length} - "
                "shorten training.sequence_length, or prepare more data"
            )
        self._held_out = windows // _HELD_OUT
        self._training = windows - self._held_out
        self._epoch = -1
        self._shuffle = Shuffle(self._training, seed)

    def sample(self, number: int) -> Tensor:
        """Return a sample by its number in the job; after the last comes the next epoch."""
        epoch, place = divmod(number, self._training)
        if epoch != self._epoch:
            self._epoch = epoch
            self._shuffle = Shuffle(self._training, self._seed + epoch)
        return self._window(self._shuffle[place])

    def validation(self, most: int) -> list[Tensor]:
        """Return at most so many windows that training never sees."""
        return [self._window(self._training + place) for place in range(min(most, self._held_out))]

    def state(self) -> dict[str, object]:
        """Return what has to be kept besides the number of samples taken."""
        return {}

    def restore(self, state: dict[str, object]) -> None:
        """Take up where a checkpoint left; the number of samples says it all."""

    def _window(self, window: int) -> Tensor:
        first = window * self._length
        return torch.from_numpy(self._tokens[first : first + self._length + 1].astype(np.int64))
