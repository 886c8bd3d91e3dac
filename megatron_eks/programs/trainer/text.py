"""Samples from texts, tokenized while training: the same samples whatever the number of ranks.

Documents go in turn to a fixed number of streams, each of which is cut into sequences; sample
number k is the next of stream k modulo that number. A rank tokenizes only the streams that its
samples come from, which for most numbers of ranks is its share of the whole.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from megatron_eks.programs.prepare import tokenizer
from megatron_eks.programs.prepare.job import PrepareError
from megatron_eks.programs.trainer.documents import Documents

STREAMS = 64
# Without a validation split of its own, the last of so many documents is held out.
_HELD_OUT = 20
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


class Tokenizer:
    """A Hugging Face tokenizer, from a directory or by name; its EOS ends each document."""

    def __init__(self, name: str) -> None:
        """Raise ValueError if it is not there, not readable, or has no end of document."""
        try:
            loaded = tokenizer.load(_directory(name), "tokenizers")
        except PrepareError as problem:
            said = problem.finding
            raise ValueError(f"{said.subject}: {said.found} - {said.remedy}") from problem
        if loaded.eod is None:
            raise ValueError(f"{name}: no end of document - set eos_token in tokenizer_config.json")
        self.vocabulary, self.end = loaded.numbers, loaded.eod.id
        self._library = loaded.reference.library

    def encode(self, text: str) -> list[int]:
        """Return a document's tokens; none at all for an empty text."""
        if not text:
            return []
        return [*self._library.encode(text, add_special_tokens=False).ids, self.end]


@dataclass
class _Piece:
    """A document in a stream: where it stands, and how many of its tokens are used."""

    epoch: int
    place: int
    number: int
    tokens: list[int]
    used: int = 0


@dataclass
class _Stream:
    """Documents that wait to be cut, and how many sequences were cut so far."""

    pieces: deque[_Piece] = field(default_factory=deque)
    waiting: int = 0
    cut: int = 0
    start: list[int] | None = None
    """Of a resumed run: number of the document to begin with, and tokens of it to leave out."""


class TextSamples:
    """Sequences of length + 1 tokens; neighbours in a stream share one."""

    def __init__(self, documents: Documents, tokenizer: Tokenizer, length: int) -> None:
        self._documents = documents
        self._held_out = documents.held_out()
        self._tokenizer = tokenizer
        self._length = length
        self._streams: dict[int, _Stream] = {}
        self._saved: dict[str, list[int]] = {}
        self._epoch, self._place, self._number = 0, 0, 0
        self._raw: Iterator[Any] | None = None
        self._wanted: set[int] = set()
        self._epochs_without = 0

    def expect(self, streams: set[int]) -> None:
        """Say which streams samples will be asked of; the others are read over."""
        self._wanted = streams
        for number in streams:
            stream = self._streams[number] = _Stream()
            saved = self._saved.get(str(number))
            if saved:
                stream.cut, stream.start = saved[0], saved[3:]
        begins = [saved for saved in self._saved.values() if saved]
        if begins:
            first = min(begins, key=lambda saved: saved[3])
            self._epoch, self._place, self._number = first[1], first[2], first[3]

    def sample(self, number: int) -> Tensor:
        """Return a sample by its number in the job; samples of a stream only in order."""
        turn, which = divmod(number, STREAMS)
        stream = self._streams[which]
        while stream.cut < turn:
            self._cut(stream)
        return self._cut(stream)

    def validation(self, most: int) -> list[Tensor]:
        """Return at most so many sequences of held-out documents."""
        source = self._held_out or self._documents
        tokens: list[int] = []
        every: Iterator[Any] = source.read(0)
        for place, raw in enumerate(every):
            if self._held_out is None and not _is_held_out(place):
                continue
            tokens += self._tokenizer.encode(source.text(raw, place))
            if len(tokens) > most * self._length:
                break
        starts = range(0, len(tokens) - 1, self._length)
        found = [torch.tensor(tokens[at : at + self._length + 1]) for at in starts[:most]]
        whole = [sequence for sequence in found if len(sequence) == self._length + 1]
        return whole or found

    def state(self) -> dict[str, list[int]]:
        """Return, for each stream, sequences cut, and where the next token stands."""
        state = dict(self._saved)
        for which, stream in self._streams.items():
            if stream.pieces:
                first = stream.pieces[0]
                state[str(which)] = [
                    stream.cut, first.epoch, first.place, first.number, first.used
                ]  # fmt: skip
        return state

    def restore(self, state: dict[str, list[int]]) -> None:
        """Take up where a checkpoint left; before `expect`."""
        self._saved = dict(state)

    def _cut(self, stream: _Stream) -> Tensor:
        while stream.waiting < self._length + 1:
            self._read()
        tokens: list[int] = []
        while len(tokens) < self._length:
            piece = stream.pieces[0]
            taken = piece.tokens[piece.used : piece.used + self._length - len(tokens)]
            piece.used += len(taken)
            tokens += taken
            if piece.used == len(piece.tokens):
                stream.pieces.popleft()
        # The label of the last token is the first of the next sequence.
        following = stream.pieces[0]
        tokens.append(following.tokens[following.used])
        stream.waiting -= self._length
        stream.cut += 1
        return torch.tensor(tokens)

    def _read(self) -> None:
        """Put the next document into its stream, if that is one of ours."""
        if self._raw is None:
            self._raw = self._documents.read(self._place)
        raw = next(self._raw, None)
        if raw is None:
            self._next_epoch()
            return
        place, self._place = self._place, self._place + 1
        if self._held_out is None and _is_held_out(place):
            return
        number, self._number = self._number, self._number + 1
        stream = self._streams.get((number + self._turn) % STREAMS)
        if stream is None or (stream.start and number < stream.start[0]):
            return
        tokens = self._tokenizer.encode(self._documents.text(raw, place))
        used = stream.start[1] if stream.start and number == stream.start[0] else 0
        if len(tokens) > used:
            stream.pieces.append(_Piece(self._epoch, place, number, tokens, used))
            stream.waiting += len(tokens) - used
            self._epochs_without = 0

    @property
    def _turn(self) -> int:
        """How far documents are moved on, so that they change streams from epoch to epoch."""
        return self._epoch * (self._epoch + 1) // 2

    def _next_epoch(self) -> None:
        # In so many epochs even a single document has come to every stream.
        if self._place == 0 or self._epochs_without > 2 * STREAMS:
            raise ValueError("the data set has no text to train on - correct data.dataset")
        self._epochs_without += 1
        self._epoch, self._place, self._raw = self._epoch + 1, 0, None


def merge(states: list[dict[str, list[int]]]) -> dict[str, list[int]]:
    """Join what ranks know of their streams; who has cut most of a stream knows best."""
    merged: dict[str, list[int]] = {}
    for state in states:
        for stream, known in state.items():
            if stream not in merged or known[0] > merged[stream][0]:
                merged[stream] = known
    return merged


def _is_held_out(place: int) -> bool:
    return place % _HELD_OUT == _HELD_OUT - 1


def _directory(name: str) -> Path:
    if Path(name).is_dir() or Path(name).is_absolute():
        return Path(name)
    from huggingface_hub import snapshot_download  # noqa: PLC0415 -- only a name needs the network

    try:
        return Path(snapshot_download(name, allow_patterns=_TOKENIZER_FILES))
    except Exception as problem:
        raise ValueError(
            f"{name}: {problem} - put the tokenizer on the shared file system and name its folder"
        ) from problem
