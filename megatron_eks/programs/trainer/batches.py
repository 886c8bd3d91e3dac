"""What a rank trains on: batches of its samples, made ahead, each with the state after it."""

import threading
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from megatron_eks.programs.trainer.config import Config
from megatron_eks.programs.trainer.documents import open_documents
from megatron_eks.programs.trainer.indexed import IndexedSamples
from megatron_eks.programs.trainer.order import rank_samples
from megatron_eks.programs.trainer.text import STREAMS, TextSamples, Tokenizer

_VALIDATION_SEQUENCES = 64
# A read from the network may hang, and GPUs are not to wait for it after the last step.
_PATIENCE_SECONDS = 30.0

Samples = IndexedSamples | TextSamples


@dataclass(frozen=True)
class Batch:
    """The sequences of one step of one rank, on the CPU."""

    sequences: Tensor
    """Sequence length + 1 tokens each; every token is the label of the one before it."""
    state: dict[str, Any]
    """Of the samples, once this batch is used."""


def open_samples(config: Config, vocabulary: int) -> Samples:
    """Open the data set of a configuration; raises ValueError and OSError, for people to read."""
    training, data = config.training, config.data
    if is_indexed(data.dataset):
        return IndexedSamples(data.dataset, training.sequence_length, training.seed)
    tokenizer = Tokenizer(data.tokenizer)
    if tokenizer.vocabulary > vocabulary:
        raise ValueError(
            f"{data.tokenizer}: {tokenizer.vocabulary} tokens, and the model knows {vocabulary} - "
            "use the model's own tokenizer, or raise model.vocab_size"
        )
    documents = open_documents(data.dataset, data.configuration)
    return TextSamples(documents, tokenizer, training.sequence_length)


def is_indexed(dataset: str) -> bool:
    """Tell whether a data set is named by the prefix of two files."""
    return Path(f"{dataset}.idx").is_file()


class Batches:
    """The batches of one rank from a number of used samples on."""

    def __init__(
        self,
        samples: Samples,
        *,
        consumed: int,
        per_rank: int,
        rank: int,
        ranks: int,
        ahead: int,
        vocabulary: int,
    ) -> None:
        self._samples = samples
        self._consumed, self._per_rank = consumed, per_rank
        self._rank, self._ranks = rank, ranks
        self._vocabulary = vocabulary
        if isinstance(samples, TextSamples):
            turns = range(rank, STREAMS * ranks, ranks)
            samples.expect({number % STREAMS for number in turns})
        self._asked = threading.Semaphore(ahead)
        self._made = SimpleQueue[Batch | Exception]()
        self._is_closed = False
        # Of an executor's threads Python waits for each before it ends.
        self._maker = threading.Thread(target=self._fill, daemon=True)
        self._maker.start()

    def close(self) -> None:
        """End the thread that makes batches ahead.

        A thread that is inside PyTorch when Python ends takes the process down with SIGABRT, and a
        job that is done would count as failed.
        """
        self._is_closed = True
        self._asked.release()
        self._maker.join(_PATIENCE_SECONDS)

    def next(self) -> Batch:
        """Return the next batch; raises what reading and tokenizing raise."""
        self._asked.release()
        made = self._made.get()
        if isinstance(made, Exception):
            raise made
        return made

    def _fill(self) -> None:
        while self._asked.acquire() and not self._is_closed:
            try:
                self._made.put(self._make())
            except Exception as problem:  # noqa: BLE001 -- raised where the batch is asked for
                self._made.put(problem)

    def _make(self) -> Batch:
        numbers = rank_samples(self._consumed, self._per_rank, self._rank, self._ranks)
        self._consumed += self._per_rank * self._ranks
        tokens = torch.stack([self._samples.sample(number) for number in numbers])
        # On a GPU this would end the process with a message about an assertion in a kernel.
        if int(tokens.max()) >= self._vocabulary or int(tokens.min()) < 0:
            raise ValueError(
                f"a token is {int(tokens.max())}, and the model knows {self._vocabulary} - "
                "prepare the data with the model's tokenizer, or raise model.vocab_size"
            )
        if torch.cuda.is_available():
            tokens = tokens.pin_memory()
        return Batch(tokens, self._samples.state())


def validation_shares(samples: Samples, rank: int, ranks: int) -> list[Tensor | None]:
    """Return this rank's held-out sequences; None where another rank has one more.

    All ranks return equally many, because each forward pass is one of all ranks together.
    """
    every = samples.validation(_VALIDATION_SEQUENCES)
    mine, rounds = every[rank::ranks], -(-len(every) // ranks)
    return [*mine, *[None] * (rounds - len(mine))]
