"""Tokenizers of Hugging Face's format: gigatoken where it gives the same tokens, or `tokenizers`.

Both read `tokenizer.json`; neither adds BOS or EOD by itself, which differs between Megatron's
versions (0.15 and 0.16 add no BOS, later ones do), so both are asked for and recorded here.
"""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from megatron_eks.programs.prepare.job import usage

Tokens: TypeAlias = "np.ndarray[Any, np.dtype[np.uint32]]"

# gigatoken remembers every word that it met, without a limit, in a table that grows by doubling.
_CACHE_BYTES = 256 << 20
_SMALL_TYPE_BELOW = 65500
"""Megatron's border between two and four bytes a token (indexed_dataset.py, optimal_dtype)."""

SAMPLES = (
    "",
    " ",
    "The quick brown fox's 1234567 jumps -- over\r\n\tthe  lazy dog.   \n\n",
    "don't DON'T we'll I'M a'b '' \u2019s",
    "caf\u00e9 cafe\u0301 na\u00efve \u00df\u0130\u0131 \ufb01 \u2126",
    "\u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \uc548\ub155",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f600\U0001f3fd",
    "\0\x01\x7f\x85\xa0\u2028\u2029\ufeff\ufffd\U0010ffff",
    "\u0661\u0662\u0663 \u00bd\u00b2 \u2167 1.5e-3 0x1F x==y!=z {[()]} <|x|> </s> <s>",
    "a" * 300 + " " * 300 + "\n" * 50 + "0" * 50,
)


class HuggingFace:
    """The reference: `tokenizers`, one thread in each worker."""

    def __init__(self, data: bytes) -> None:
        # Workers are processes, and a thread pool does not survive a fork.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        import tokenizers  # noqa: PLC0415 -- after the setting that it reads

        self.library: Any = tokenizers.Tokenizer.from_buffer(data)
        # transformers switches both off as well.
        self.library.no_truncation()
        self.library.no_padding()

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text."""
        found = self.library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.uint32) for encoding in found]


class Gigatoken:
    """The quick one: about thirty times as fast as `tokenizers`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._load()
        self._at_rest = _resident_bytes()

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of each text, and keep the memory bounded."""
        tokens = [self._encode(text) for text in texts]
        if _resident_bytes() - self._at_rest > _CACHE_BYTES:
            self._load()
        return tokens

    def _load(self) -> None:
        import gigatoken  # noqa: PLC0415 -- not every image has it

        self._encode: Any = gigatoken.Tokenizer.from_json(self._data).backend.encode


Encoder = HuggingFace | Gigatoken
"""Texts to token numbers, without BOS or EOD."""


@dataclass(frozen=True)
class Special:
    """A token that is put before or after each document."""

    token: str
    id: int


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer's folder, read: what encodes, and what the sidecar records."""

    directory: Path
    sha256: str
    vocabulary: int
    numbers: int
    """One more than the largest number of a token."""
    bos: Special | None
    eod: Special | None
    adds: str | None
    """What its own post-processor adds to a text, in words; None if nothing."""
    reference: HuggingFace
    encoder: Encoder
    refused: str | None
    """Why gigatoken does not serve, if it does not."""

    @property
    def backend(self) -> str:
        """The library that encodes."""
        return "gigatoken" if isinstance(self.encoder, Gigatoken) else "tokenizers"

    @property
    def token_type(self) -> "np.dtype[Any]":
        """The type of a token on disk, by Megatron's rule."""
        return np.dtype("<u2" if self.vocabulary < _SMALL_TYPE_BELOW else "<i4")

    def record(self) -> dict[str, object]:
        """Return what a sidecar says of it."""
        return {
            "directory": str(self.directory),
            "sha256": self.sha256,
            "vocabulary": self.vocabulary,
            "backend": self.backend,
            "backend_version": importlib.metadata.version(self.backend),
        }


def load(directory: Path, backend: str) -> Tokenizer:
    """Read a folder with `tokenizer.json`, and choose what encodes."""
    path = directory / "tokenizer.json"
    try:
        data = path.read_bytes()
        reference = HuggingFace(data)
    except FileNotFoundError as problem:
        raise usage(path, "no such file", "name a folder that holds it") from problem
    except Exception as problem:
        raise usage(path, f"cannot be read: {problem}", "save the tokenizer again") from problem
    names = _special_names(directory)
    vocabulary = reference.library.get_vocab(with_added_tokens=True)
    quick = _gigatoken(data, reference, vocabulary) if backend == "auto" else None
    tokenizer = Tokenizer(
        directory=directory,
        sha256=hashlib.sha256(data).hexdigest(),
        vocabulary=len(vocabulary),
        numbers=max(vocabulary.values()) + 1,
        bos=_special(vocabulary, names, "bos_token", "cls_token"),
        eod=_special(vocabulary, names, "eos_token", "sep_token"),
        adds=_added(reference),
        reference=reference,
        encoder=quick if isinstance(quick, Gigatoken) else reference,
        refused=quick if isinstance(quick, str) else None,
    )
    if tokenizer.numbers > np.iinfo(tokenizer.token_type).max + 1:
        found = f"{len(vocabulary)} tokens, but one has number {tokenizer.numbers - 1}"
        remedy = "Megatron would store it in two bytes: save the tokenizer without the gap"
        raise usage(path, found, remedy)
    return tokenizer


def difference(one: Encoder, other: Encoder, samples: Sequence[str]) -> str | None:
    """Return the first sample that two encoders do not encode alike."""
    pairs = zip(samples, one.encode(samples), other.encode(samples), strict=True)
    return next((text for text, a, b in pairs if not np.array_equal(a, b)), None)


def _gigatoken(data: bytes, reference: HuggingFace, vocabulary: dict[str, int]) -> Gigatoken | str:
    """Return gigatoken if it gives the reference's tokens on the samples, else why it does not."""
    added = [token["content"] for token in json.loads(data).get("added_tokens", [])]
    samples = [*SAMPLES, *(text for token in added[:500] for text in _around(token))]
    # A word of each part of the vocabulary, so that merges are met beyond those of the samples.
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    samples.append(reference.library.decode([vocabulary[word] for word in words[::97]]))
    try:
        encoder = Gigatoken(data)
        sample = difference(encoder, reference, samples)
    except ImportError:
        return "not installed"
    except Exception as problem:  # noqa: BLE001 -- whatever a beta release raises, it cannot serve
        return f"{type(problem).__name__}: {problem}"
    return encoder if sample is None else f"other tokens for {sample[:80]!r}"


def _around(token: str) -> Iterator[str]:
    yield token
    yield f"a{token}b {token} {token}{token}\n{token[:-1]} {token[1:]}"


def _added(reference: HuggingFace) -> str | None:
    plain = reference.library.encode("a", add_special_tokens=False)
    whole = reference.library.encode("a", add_special_tokens=True)
    return None if plain.ids == whole.ids else " ".join(whole.tokens)


def _special_names(directory: Path) -> dict[str, str]:
    """Return the named special tokens, as transformers reads them."""
    names: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        path = directory / name
        if not path.is_file():
            continue
        try:
            content = json.loads(path.read_bytes())
        except ValueError as problem:
            raise usage(path, f"not JSON: {problem}", "save the tokenizer again") from problem
        for key, value in content.items():
            token = value.get("content") if isinstance(value, dict) else value
            if isinstance(token, str):
                names[key] = token
    return names


def _special(vocabulary: dict[str, int], names: dict[str, str], *keys: str) -> Special | None:
    """Return the first token that is named and known; Megatron falls back in the same order."""
    for key in keys:
        token = names.get(key)
        if token is not None and token in vocabulary:
            return Special(token, vocabulary[token])
    return None


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
