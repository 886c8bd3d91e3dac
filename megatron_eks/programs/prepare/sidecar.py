"""The sidecar of a data set: what went in, with which tokenizer, and what came out."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from megatron_eks.programs.prepare.inputs import Source
from megatron_eks.programs.prepare.job import SHOWN_LINES, Options, document_prefix
from megatron_eks.programs.prepare.output import SKIPPED, read_json
from megatron_eks.programs.prepare.reader import LONGEST_LINE, Reader
from megatron_eks.programs.prepare.run import Counts
from megatron_eks.programs.prepare.tokenizer import Tokenizer

PROGRAM = "prepare_data"
FORMAT = 1
"""Rises when the bytes of an output change for the same recipe."""
SUMMED = ("lines", "documents", "skipped", "tokens")
"""What of an input its shards add up."""

Entry: TypeAlias = dict[str, Any]
"""One input, as a sidecar has it; or the whole sidecar."""


def recipe(options: Options, sources: Sequence[Source], tokenizer: Tokenizer) -> dict[str, object]:
    """Return all that the bytes of the output depend on, shards aside."""
    return {
        "format": FORMAT,
        "inputs": [[source.name, source.size, source.identity] for source in sources],
        "tokenizer": tokenizer.sha256,
        "json_keys": list(options.json_keys),
        "bos": asdict(tokenizer.bos) if options.add_bos and tokenizer.bos else None,
        "eod": asdict(tokenizer.eod) if options.append_eod and tokenizer.eod else None,
        "max_line_bytes": LONGEST_LINE,
    }


def build(
    identity: str,
    recipe: Mapping[str, object],
    json_key: str,
    inputs: Sequence[Entry],
    tokenizer: Tokenizer,
    *,
    files: Mapping[str, object],
) -> Entry:
    """Return one key's sidecar; nothing in it depends on when or by how many it was made."""
    totals = {name: sum(entry[name] for entry in inputs) for name in SUMMED}
    return {
        "program": PROGRAM,
        "recipe": identity,
        "json_key": json_key,
        **totals,
        "token_type": tokenizer.token_type.name,
        "bos": recipe["bos"],
        "eod": recipe["eod"],
        "tokenizer": tokenizer.record(),
        "inputs": list(inputs),
        **files,
    }


def inputs(reader: Reader, counts: Sequence[Counts], key: int) -> list[Entry]:
    """Return what is recorded of each input for one key."""
    return [
        {
            "file": source.name,
            "bytes": source.size,
            "compression": packed,
            "lines": count.lines,
            "documents": count.lines - count.skipped,
            "skipped": count.skipped,
            "tokens": count.tokens[key],
        }
        for source, packed, count in zip(reader.sources, reader.packing, counts, strict=True)
    ]


def joined(shards: Sequence[Sequence[Entry]]) -> list[Entry]:
    """Add up what the shards say of each input."""
    return [
        {**entries[0], **{name: sum(each[name] for each in entries) for name in SUMMED}}
        for entries in zip(*shards, strict=True)
    ]


def read(prefix: str, keys: Sequence[str]) -> list[Entry]:
    """Return the sidecars of all keys; none if one of them is not there."""
    found = [read_json(Path(f"{document_prefix(prefix, key)}.json")) for key in keys]
    whole = [sidecar for sidecar in found if sidecar is not None]
    return whole if len(whole) == len(found) else []


def are_whole(prefix: str, sidecars: Sequence[Entry]) -> bool:
    """Tell whether there are sidecars, and the files beside them, by their sizes."""
    sizes = {
        Path(f"{document_prefix(prefix, sidecar['json_key'])}.{kind}"): sidecar[kind]["bytes"]
        for sidecar in sidecars
        for kind in ("bin", "idx")
    }
    there = all(path.is_file() and path.stat().st_size == sizes[path] for path in sizes)
    return bool(sizes) and there


def summary(prefix: str, sidecars: Sequence[Entry]) -> dict[str, object]:
    """Return the facts of the program's last line."""
    count = sidecars[0]["skipped"]
    return {
        "documents": sidecars[0]["documents"],
        "tokens": sum(sidecar["tokens"] for sidecar in sidecars),
        "skipped": skipped(f"{prefix}.{SKIPPED}") if count else [],
        "skipped_count": count,
        "skipped_file": f"{prefix}.{SKIPPED}" if count else None,
        "outputs": [document_prefix(prefix, sidecar["json_key"]) for sidecar in sidecars],
    }


def skipped(path: str) -> list[Entry]:
    """Return the first lines that were skipped."""
    with Path(path).open("rb") as lines:
        return [json.loads(line) for line in itertools.islice(lines, SHOWN_LINES)]
