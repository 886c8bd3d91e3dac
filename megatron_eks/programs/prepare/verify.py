"""Reads a data set back: is it what its sidecar says, can its tokenizer have written it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from megatron_eks.programs.prepare import tokenizer as tokenizers
from megatron_eks.programs.prepare.index import Index, parts, running_sums
from megatron_eks.programs.prepare.indexed_data import check_prefix
from megatron_eks.programs.prepare.job import PrepareError, file_sha256
from megatron_eks.programs.prepare.output import read_json
from megatron_eks.programs.program import Finding, error, warning

_AGAIN = "prepare the data set again"

Facts = dict[str, object]


def contradiction(index: Index) -> str | None:
    """Return what in an index contradicts itself."""
    sums = running_sums(parts(index.lengths), index.token_type.itemsize)
    for lengths, pointers, expected in zip(
        parts(index.lengths), parts(index.pointers), sums, strict=True
    ):
        if lengths.min() < 0:
            return "a sequence has a negative length"
        if not np.array_equal(pointers, expected[:-1]):
            return "a sequence does not begin where the one before it ends"
    for boundaries in parts(index.boundaries, shared=1):
        if boundaries[0] < 0 or (np.diff(boundaries) < 0).any():
            return "a document ends before it begins"
    return None


def check(prefix: str, tokenizer: Path | None, facts: Facts) -> Iterator[Finding]:
    """Read both files to the end; facts are what was found, findings what is wrong."""
    facts |= {"documents": 0, "tokens": 0}
    structure = list(check_prefix(prefix, []))
    yield from structure
    if structure:
        return
    index = Index(prefix)
    problem = contradiction(index)
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
        "smallest_token": min(int(row.min()) for row in parts(index.tokens)),
        "largest_token": max(int(row.max()) for row in parts(index.tokens)),
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
            loaded = tokenizers.load(tokenizer, "tokenizers")
        except PrepareError as problem:
            yield from problem.findings
            return
        vocabulary = loaded.numbers
        if sidecar and loaded.sha256 != sidecar["tokenizer"]["sha256"]:
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
