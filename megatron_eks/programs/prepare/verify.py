"""Reads a data set back: is it what its sidecar says, can its tokenizer have written it."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from megatron_eks.programs.prepare.indexed_data import HEADER, TYPES, check_prefix
from megatron_eks.programs.prepare.job import file_sha256
from megatron_eks.programs.prepare.output import ROWS, read_json, running_sums
from megatron_eks.programs.program import Finding, error, usage_error, warning

_AGAIN = "prepare the data set again"

Facts = dict[str, object]
Array: TypeAlias = "np.ndarray[Any, Any]"


class Index:
    """An index and its tokens as the file system holds them, a part in memory at a time."""

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

    def rows(self, array: Array) -> Iterator[Array]:
        """Yield an array in parts."""
        for place in range(0, len(array), ROWS):
            yield array[place : place + ROWS]

    def check(self) -> str | None:
        """Return what contradicts itself."""
        sums = running_sums(self.rows(self.lengths), self.token_type.itemsize)
        for lengths, pointers, expected in zip(
            self.rows(self.lengths), self.rows(self.pointers), sums, strict=True
        ):
            if lengths.min() < 0:
                return "a sequence has a negative length"
            if not np.array_equal(pointers, expected[:-1]):
                return "a sequence does not begin where the one before it ends"
        last = 0
        for boundaries in self.rows(self.boundaries):
            if boundaries[0] < last or (np.diff(boundaries) < 0).any():
                return "a document ends before it begins"
            last = boundaries[-1]
        return None


def check(prefix: str, tokenizer: Path | None, facts: Facts) -> Iterator[Finding]:
    """Read both files to the end; facts are what was found, findings what is wrong."""
    facts |= {"documents": 0, "tokens": 0}
    structure = list(check_prefix(prefix, []))
    yield from structure
    if structure:
        return
    index = Index(prefix)
    problem = index.check()
    if problem:
        yield error(f"{prefix}.idx", problem, _AGAIN)
        return
    if not len(index.tokens):
        yield error(f"{prefix}.bin", "it holds no token", _AGAIN)
        return
    facts |= {
        "documents": index.documents,
        "sequences": len(index.lengths),
        "tokens": len(index.tokens),
        "token_type": index.token_type.name,
        "smallest_token": min(int(row.min()) for row in index.rows(index.tokens)),
        "largest_token": max(int(row.max()) for row in index.rows(index.tokens)),
    }
    sidecar = read_json(Path(f"{prefix}.json"))
    if sidecar is None and Path(f"{prefix}.json").exists():
        yield error(f"{prefix}.json", "it is no sidecar of prepare_data", _AGAIN)
    elif sidecar is None:
        yield warning(f"{prefix}.json", "no sidecar", "what went in cannot be told")
    else:
        for kind in ("bin", "idx"):
            if file_sha256(Path(f"{prefix}.{kind}")) != sidecar[kind]["sha256"]:
                yield error(f"{prefix}.{kind}", "its SHA-256 is not the sidecar's", _AGAIN)
    yield from _check_vocabulary(prefix, tokenizer, sidecar, facts)


def _check_vocabulary(
    prefix: str, tokenizer: Path | None, sidecar: Mapping[str, Any] | None, facts: Facts
) -> Iterator[Finding]:
    if tokenizer is not None:
        try:
            data = (tokenizer / "tokenizer.json").read_bytes()
            vocabulary = _numbers(json.loads(data))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as problem:
            yield usage_error("--tokenizer", f"cannot be read: {problem}", "name its folder")
            return
        if sidecar and hashlib.sha256(data).hexdigest() != sidecar["tokenizer"]["sha256"]:
            found = f"prepared with another tokenizer than {tokenizer}"
            remedy = f"train with that of {sidecar['tokenizer']['directory']}, or {_AGAIN}"
            yield error(prefix, found, remedy)
    elif sidecar:
        vocabulary = sidecar["tokenizer"]["vocabulary"]
    else:
        yield warning(prefix, "no sidecar and no --tokenizer", "the vocabulary is not checked")
        return
    facts["vocabulary"] = vocabulary
    smallest, largest = int(str(facts["smallest_token"])), int(str(facts["largest_token"]))
    if not 0 <= smallest <= largest < vocabulary:
        found = f"tokens from {smallest} to {largest}, but the tokenizer has 0 to {vocabulary - 1}"
        yield error(prefix, found, "train with the tokenizer that it was prepared with")


def _numbers(content: Mapping[str, Any]) -> int:
    """Return one more than the largest token number of a tokenizer.json."""
    vocabulary = content["model"]["vocab"]
    model = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    added = [int(token["id"]) for token in content.get("added_tokens", [])]
    return 1 + max([*map(int, model), *added])
