"""What one preparation is asked to do, and how it says that it cannot."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from megatron_eks.programs import program
from megatron_eks.programs.program import Finding, StopError

SHOWN_LINES = 1000
"""Skipped lines that the summary names; a file holds them all."""


class PrepareError(StopError):
    """The preparation cannot go on; the exit code is 1, or 2 where the command line is wrong."""

    def __init__(self, *findings: Finding) -> None:
        # Only these: a worker's error is made anew from them in this process.
        Exception.__init__(self, *findings)
        self.findings = findings
        is_usage = any(each.usage for each in findings)
        self.code = program.EXIT_USAGE if is_usage else program.EXIT_FAILED


def failure(subject: object, found: str, remedy: str) -> PrepareError:
    """Return the error for a world that is not as it has to be."""
    return PrepareError(program.error(subject, found, remedy))


def usage(subject: object, found: str, remedy: str) -> PrepareError:
    """Return the error for a command line that asks for what cannot be."""
    return PrepareError(program.usage_error(subject, found, remedy))


@dataclass(frozen=True)
class BadLine:
    """A line that gives no document, as the summary and the list of skipped lines show it."""

    file: str
    line: int
    """Counted from 1, as an editor does."""
    reason: str


@dataclass(frozen=True)
class Shard:
    """One part of a preparation that several processes share."""

    index: int
    count: int


@dataclass(frozen=True)
class Options:
    """The command line of a preparation."""

    inputs: tuple[str, ...]
    output_prefix: str
    tokenizer: Path
    json_keys: tuple[str, ...]
    append_eod: bool
    add_bos: bool
    on_bad_line: Literal["fail", "skip"]
    backend: Literal["auto", "tokenizers"]
    workers: int
    commit_seconds: float
    resume: bool
    shard: Shard | None
    shards: int

    @property
    def prefix(self) -> str:
        """Where this process writes: a shard has files of its own."""
        return shard_prefix(self.output_prefix, self.shard) if self.shard else self.output_prefix


def shard_prefix(prefix: str, shard: Shard) -> str:
    """Return the output prefix of one shard."""
    return f"{prefix}.shard-{shard.index}-of-{shard.count}"


def document_prefix(prefix: str, key: str) -> str:
    """Return what Megatron calls the data set of one JSON key (tools/preprocess_data.py)."""
    return f"{prefix}_{key}_document"


def digest(content: Mapping[str, object]) -> str:
    """Return the SHA-256 of a JSON object, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Return a file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
