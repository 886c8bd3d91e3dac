"""The sidecar of a data set: what went in, with which tokenizer, and what came out."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from megatron_eks.programs.prepare.inputs import Source
from megatron_eks.programs.prepare.job import SHOWN_LINES, Options, document_prefix
from megatron_eks.programs.prepare.output import SKIPPED, read_json
from megatron_eks.programs.prepare.run import Counts
from megatron_eks.programs.prepare.tokenizer import Tokenizer

PROGRAM = "prepare_data"
FORMAT = 1
"""Rises when the bytes of an output change for the same recipe."""


def recipe(options: Options, sources: Sequence[Source], tokenizer: Tokenizer) -> dict[str, object]:
    """Return all that the bytes of the output depend on, shards aside."""
    return {
        "format": FORMAT,
        "inputs": [[source.name, source.size, source.identity] for source in sources],
        "tokenizer": tokenizer.sha256,
        "json_keys": list(options.json_keys),
        "bos": asdict(tokenizer.bos) if options.add_bos and tokenizer.bos else None,
        "eod": asdict(tokenizer.eod) if options.append_eod and tokenizer.eod else None,
        "max_line_bytes": options.max_line_bytes,
    }


def build(
    identity: str,
    recipe: Mapping[str, object],
    json_key: str,
    inputs: Sequence[Mapping[str, Any]],
    tokenizer: Tokenizer,
    *,
    files: Mapping[str, object],
) -> dict[str, object]:
    """Return one key's sidecar; nothing in it depends on when or by how many it was made."""
    return {
        "program": PROGRAM,
        "recipe": identity,
        "json_key": json_key,
        "documents": sum(entry["documents"] for entry in inputs),
        "tokens": sum(entry["tokens"] for entry in inputs),
        "longest": max((entry["longest"] for entry in inputs), default=0),
        "skipped": sum(entry["skipped"] for entry in inputs),
        "token_type": tokenizer.token_type.name,
        "bos": recipe["bos"],
        "eod": recipe["eod"],
        "tokenizer": tokenizer.record(),
        "inputs": list(inputs),
        **files,
    }


def inputs(
    sources: Sequence[Source], packing: Sequence[str | None], counts: Sequence[Counts], key: int
) -> list[dict[str, object]]:
    """Return what is recorded of each input for one key."""
    return [
        {
            "file": source.name,
            "bytes": source.size,
            **_identity(source, count),
            "compression": packed,
            "lines": count.lines,
            "documents": count.documents,
            "skipped": count.skipped,
            "tokens": count.tokens[key],
            "longest": count.longest[key],
        }
        for source, packed, count in zip(sources, packing, counts, strict=True)
    ]


def read(prefix: str, keys: Sequence[str]) -> list[dict[str, Any]] | None:
    """Return the sidecars of all keys; None if one is not there."""
    found = [read_json(Path(f"{document_prefix(prefix, key)}.json")) for key in keys]
    whole = [sidecar for sidecar in found if sidecar is not None]
    return whole if len(whole) == len(found) else None


def are_whole(prefix: str, sidecars: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether the files beside the sidecars are there, by their sizes."""
    for sidecar in sidecars:
        for kind in ("bin", "idx"):
            path = Path(f"{document_prefix(prefix, sidecar['json_key'])}.{kind}")
            if not path.is_file() or path.stat().st_size != sidecar[kind]["bytes"]:
                return False
    return True


def summary(
    prefix: str, keys: Sequence[str], sidecars: Sequence[Mapping[str, Any]]
) -> dict[str, object]:
    """Return the facts of the program's last line."""
    names = ("documents", "tokens", "longest", "token_type", "inputs")
    paths = [document_prefix(prefix, key) for key in keys]
    count = sidecars[0]["skipped"]
    return {
        "documents": sidecars[0]["documents"],
        "tokens": sum(sidecar["tokens"] for sidecar in sidecars),
        "skipped": skipped(f"{prefix}.{SKIPPED}") if count else [],
        "skipped_count": count,
        "skipped_file": f"{prefix}.{SKIPPED}" if count else None,
        "outputs": [
            {"prefix": path, **{name: sidecar[name] for name in names}}
            for path, sidecar in zip(paths, sidecars, strict=True)
        ],
        # For `data.blend` of a job: weights by tokens, so those of several preparations join.
        "blend": [
            {"weight": sidecar["tokens"], "prefix": path}
            for path, sidecar in zip(paths, sidecars, strict=True)
        ],
    }


def skipped(path: str) -> list[dict[str, object]]:
    """Return the first lines that were skipped."""
    with Path(path).open("rb") as lines:
        return [json.loads(line) for line in itertools.islice(lines, SHOWN_LINES)]


def _identity(source: Source, count: Counts) -> dict[str, object]:
    kind, _, value = source.identity.partition(":")
    return {"etag": value} if kind == "etag" else {"sha256": count.sha256}
