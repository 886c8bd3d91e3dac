"""The files of a preparation: grown aside, resumed from the last commit, named at the very end."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from megatron_eks.programs.checkpoint import manifests
from megatron_eks.programs.prepare.index import ROWS, Array, Index, parts, running_sums
from megatron_eks.programs.prepare.indexed_data import HEADER, MAGIC, TYPES, VERSION
from megatron_eks.programs.prepare.job import BadLine, document_prefix, failure, file_sha256, usage
from megatron_eks.programs.prepare.worker import Part

STATE = "state.json"
SKIPPED = "skipped.jsonl"
_COPY_BYTES = 4 << 20


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a JSON object that this program wrote, or None where there is none."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) and "recipe" in content else None


class Store:
    """The folder beside the output in which one preparation grows its files."""

    def __init__(self, prefix: str, keys: Sequence[str], token_type: str) -> None:
        self.prefix = prefix
        self.directory = Path(f"{prefix}.work")
        self._lock = Path(f"{prefix}.lock")
        self._keys = tuple(keys)
        self._type = np.dtype(token_type)
        self._code = next(code for code, name in TYPES.items() if name == token_type)
        self._files: dict[str, IO[bytes]] = {}
        self._sums: dict[str, Any] = {}

    @property
    def has_leftovers(self) -> bool:
        """Whether a run is under way, or ended before its last step."""
        return self.directory.exists() or self._lock.exists()

    @contextlib.contextmanager
    def locked(self, *, wait: bool = False) -> Iterator[None]:
        """Keep a second process out; the lock goes with the process."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with self._lock.open("a") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError as problem:
                    raise failure(
                        self.prefix, "another process prepares it", "wait for it, or end it"
                    ) from problem
                if self._is_named(file):
                    try:
                        yield
                    finally:
                        self._lock.unlink()
                    return

    def _is_named(self, file: IO[str]) -> bool:
        """Tell whether a file is the lock still: who held it before has removed it at the end."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._lock.stat())
        except FileNotFoundError:
            return False

    def load(self, recipe: str) -> dict[str, Any] | None:
        """Return the last committed state; files are cut back to it."""
        state = read_json(self.directory / STATE)
        if state is None:
            return None
        if state["recipe"] != recipe:
            found = "it belongs to other inputs, another tokenizer or other options"
            remedy = "start again without --resume, or take another --output-prefix"
            raise usage(self.directory, found, remedy)
        return state

    def clear(self) -> None:
        """Forget what an earlier run left; the state goes last, because it says what is left."""
        for path in self.directory.glob("*"):
            if path.name != STATE:
                path.unlink()
        shutil.rmtree(self.directory, ignore_errors=True)

    def open(self, sizes: Mapping[str, int]) -> None:
        """Open the files to append to, each cut to its committed size."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in self._names():
            path = self.directory / name
            file = path.open("r+b" if path.exists() else "w+b")
            size = sizes.get(name, 0)
            if os.fstat(file.fileno()).st_size < size:
                raise failure(path, f"it has less than {size} bytes", "start without --resume")
            file.truncate(size)
            # Reads to the committed end, which is where the next bytes go.
            self._sums[name] = hashlib.file_digest(file, "sha256")
            self._files[name] = file

    def append(self, parts: Sequence[Part], bad: Sequence[BadLine]) -> None:
        """Append what one block gave."""
        for key, part in zip(self._keys, parts, strict=True):
            tokens = part.tokens.tobytes()
            self._files[f"{key}.bin"].write(tokens)
            self._sums[f"{key}.bin"].update(tokens)
            self._files[f"{key}.lengths"].write(part.lengths.tobytes())
            self._files[f"{key}.counts"].write(part.counts.tobytes())
        for line in bad:
            self._files[SKIPPED].write(json.dumps(asdict(line)).encode() + b"\n")

    def append_shard(self, prefix: str) -> None:
        """Append what one shard wrote."""
        for key in self._keys:
            document = document_prefix(prefix, key)
            with Path(f"{document}.bin").open("rb") as tokens:
                while data := tokens.read(_COPY_BYTES):
                    self._files[f"{key}.bin"].write(data)
                    self._sums[f"{key}.bin"].update(data)
            index = Index(document)
            for lengths in parts(index.lengths):
                self._files[f"{key}.lengths"].write(lengths.tobytes())
            for ends in parts(index.boundaries, shared=1):
                self._files[f"{key}.counts"].write(np.diff(ends).astype("<i4").tobytes())
        skipped = Path(f"{prefix}.{SKIPPED}")
        if skipped.exists():
            self._files[SKIPPED].write(skipped.read_bytes())

    def commit(self, state: Mapping[str, object]) -> None:
        """Make everything appended so far survive, and then say so."""
        sizes = {}
        for name, file in self._files.items():
            file.flush()
            os.fsync(file.fileno())
            sizes[name] = file.tell()
        manifests.replace_file(
            self.directory / STATE, json.dumps({**state, "sizes": sizes}).encode()
        )

    def write_index(self, key: str) -> dict[str, object]:
        """Write one key's index, and return what the sidecar says of both files."""
        sequences = self._size(f"{key}.lengths") // 4
        documents = self._size(f"{key}.counts") // 4
        path = self.directory / f"{key}.idx"
        with path.open("wb") as index:
            index.write(HEADER.pack(MAGIC, VERSION, self._code, sequences, documents + 1))
            for lengths in self._rows(f"{key}.lengths"):
                index.write(lengths.tobytes())
            for starts in running_sums(self._rows(f"{key}.lengths"), self._type.itemsize):
                index.write(starts[:-1].tobytes())
            index.write(struct.pack("<q", 0))
            for starts in running_sums(self._rows(f"{key}.counts"), 1):
                index.write(starts[1:].tobytes())
            index.flush()
            os.fsync(index.fileno())
        tokens = {"bytes": self._size(f"{key}.bin"), "sha256": self._sums[f"{key}.bin"].hexdigest()}
        return {
            "sequences": sequences,
            "bin": tokens,
            "idx": {"bytes": path.stat().st_size, "sha256": file_sha256(path)},
        }

    def publish(self, state: Mapping[str, object], sidecars: Mapping[str, object]) -> None:
        """Write the sidecars, commit, and give all files their names."""
        for key, sidecar in sidecars.items():
            text = json.dumps(sidecar, indent=1) + "\n"
            manifests.replace_file(self.directory / f"{key}.json", text.encode())
        self.commit({**state, "publishing": True})
        self.close()
        self.finish()

    def finish(self) -> None:
        """Give the files their names, those that an interrupted run did not come to.

        Nobody reads a data set without its index, so the index follows the tokens. The sidecar
        comes last: it tells a later run that all is done.
        """
        skipped = self.directory / SKIPPED
        if skipped.exists() and skipped.stat().st_size:
            skipped.replace(f"{self.prefix}.{SKIPPED}")
        elif skipped.exists():
            Path(f"{self.prefix}.{SKIPPED}").unlink(missing_ok=True)
        for key in self._keys:
            final = document_prefix(self.prefix, key)
            if (self.directory / f"{key}.bin").exists():
                for suffix in (".json", ".idx"):
                    Path(final + suffix).unlink(missing_ok=True)
            for suffix in (".bin", ".idx", ".json"):
                if (self.directory / f"{key}{suffix}").exists():
                    (self.directory / f"{key}{suffix}").replace(final + suffix)
                    manifests.sync_one(self.directory.parent)
        self.clear()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _names(self) -> list[str]:
        kinds = ("bin", "lengths", "counts")
        return [SKIPPED, *(f"{key}.{kind}" for key in self._keys for kind in kinds)]

    def _size(self, name: str) -> int:
        self._files[name].flush()
        return self._files[name].tell()

    def _rows(self, name: str) -> Iterator[Array]:
        self._files[name].flush()
        with (self.directory / name).open("rb") as file:
            while data := file.read(4 * ROWS):
                yield np.frombuffer(data, "<i4")
