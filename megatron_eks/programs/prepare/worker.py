"""What one worker does: a block of lines in, the tokens of its documents out."""

import codecs
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from megatron_eks.programs import program
from megatron_eks.programs.prepare import text as prepare_text
from megatron_eks.programs.prepare.index import Array
from megatron_eks.programs.prepare.inputs import read_range
from megatron_eks.programs.prepare.job import Options, failure
from megatron_eks.programs.prepare.reader import Block
from megatron_eks.programs.prepare.text import Document
from megatron_eks.programs.prepare.tokenizer import Gigatoken, Tokenizer, Tokens, difference

_COMPARED_CHARACTERS = 1000


@dataclass(frozen=True)
class Part:
    """The documents of one block for one JSON key, as they stand on disk."""

    tokens: Array
    lengths: Array
    """int32 for each sequence."""
    counts: Array
    """int32 for each document: its sequences."""


@dataclass(frozen=True)
class Result:
    """What came of one block."""

    lines: int
    parts: list[Part]
    bad: list[tuple[int, str]] = field(default_factory=list)


class Worker:
    """Reads, encodes and assembles blocks."""

    def __init__(self, tokenizer: Tokenizer, options: Options) -> None:
        self._tokenizer = tokenizer
        self._keys = options.json_keys
        bos, eod = options.add_bos, options.append_eod
        self._type = tokenizer.token_type
        self._bos = np.array([tokenizer.bos.id], np.uint32) if bos and tokenizer.bos else None
        self._eod = np.array([tokenizer.eod.id], np.uint32) if eod and tokenizer.eod else None

    def run(self, block: Block) -> Result:
        """Turn a block into what is appended to the files."""
        data = block.data
        if data is None:
            data = read_range(block.name, block.start, block.start + block.size)
        if block.start == 0:
            # Editors on Windows begin files so; inside of a file it is a mistake.
            data = data.removeprefix(codecs.BOM_UTF8)
        texts = prepare_text.read(data, self._keys)
        del data
        return Result(texts.lines, [self._part(each) for each in texts.documents], texts.bad)

    def _part(self, documents: Sequence[Document]) -> Part:
        sequences = [[text] if isinstance(text, str) else text for text in documents]
        encoded = iter(self._encode([text for texts in sequences for text in texts]))
        pieces: list[Tokens] = []
        lengths: list[int] = []
        counts: list[int] = []
        for texts in sequences:
            first = len(lengths)
            for _ in texts:
                self._add(next(encoded), pieces, lengths)
            # An empty document is a boundary in the index and nothing else, with no EOD either.
            if self._eod is not None and len(lengths) > first:
                pieces.append(self._eod)
                lengths[-1] += 1
            counts.append(len(lengths) - first)
        tokens = np.concatenate(pieces).astype(self._type) if pieces else np.empty(0, self._type)
        return Part(tokens, np.array(lengths, "<i4"), np.array(counts, "<i4"))

    def _add(self, tokens: Tokens, pieces: list[Tokens], lengths: list[int]) -> None:
        length = len(tokens)
        if self._bos is not None:
            pieces.append(self._bos)
            length += 1
        if length:
            pieces.append(tokens)
            lengths.append(length)

    def _encode(self, texts: list[str]) -> list[Tokens]:
        tokenizer = self._tokenizer
        if texts and isinstance(tokenizer.encoder, Gigatoken):
            # One short look in each block, so that a difference cannot stay unseen for long.
            sample = texts[len(texts) // 2][:_COMPARED_CHARACTERS]
            if difference(tokenizer.encoder, tokenizer.reference, [sample]) is not None:
                found = f"other tokens than `tokenizers` for {sample[:80]!r}"
                raise failure("gigatoken", found, "start again with --backend tokenizers")
        return tokenizer.encoder.encode(texts)


_worker: Worker


def start(worker: Worker) -> None:
    """Make this process a worker; it ends with its parent, however that ends."""
    global _worker  # noqa: PLW0603 -- a pool's initializer has no other place to keep it
    program.end_with_parent()
    # The terminal's Ctrl-C reaches every process; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _worker = worker


def run(block: Block) -> Result:
    """Run a block in this process."""
    return _worker.run(block)
