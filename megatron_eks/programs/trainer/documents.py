"""Where texts come from: a JSONL file, or a Hugging Face data set, streamed."""

import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

_KEY = "text"
JSONL = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


class BadDocumentError(ValueError):
    """A document that cannot be trained on; the text says where it stands."""


class JsonLines:
    """One JSON object a line, with its text under `text`; plain or gzip."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, start: int) -> Iterator[bytes]:
        """Yield raw documents from the one with number `start`."""
        with self._open() as lines:
            yield from islice(lines, start, None)

    def text(self, raw: bytes, place: int) -> str:
        """Return a document's text; an empty line is an empty text.

        Raises BadDocumentError.
        """
        if raw.isspace():
            return ""
        try:
            content = json.loads(raw.strip())
            text = content[_KEY]
        except (ValueError, KeyError, TypeError) as problem:
            reason = f"no key {_KEY!r}" if isinstance(problem, KeyError) else str(problem)
            raise BadDocumentError(f"{self._path}:{place + 1}: {reason} - correct it") from problem
        if not isinstance(text, str):
            raise BadDocumentError(
                f"{self._path}:{place + 1}: {_KEY!r} is no text - correct the line, or remove it"
            )
        return text

    def held_out(self) -> None:
        """Return nothing: a file has no validation split of its own."""

    def _open(self) -> IO[bytes] | gzip.GzipFile:
        if self._path.suffix == ".gz":
            return gzip.open(self._path, "rb")
        return self._path.open("rb")


class Stream:
    """A split of a Hugging Face data set; the hub's, or a local directory's."""

    def __init__(self, name: str, configuration: str | None, split: str = "train") -> None:
        from datasets import load_dataset  # noqa: PLC0415 -- only streams need it

        self._name, self._configuration = name, configuration
        self._examples: Any = load_dataset(name, configuration, split=split, streaming=True)

    def read(self, start: int) -> Iterator[dict[str, Any]]:
        """Yield examples from the one with number `start`."""
        yield from self._examples.skip(start) if start else self._examples

    def text(self, raw: dict[str, Any], place: int) -> str:
        """Return an example's text.

        Raises BadDocumentError.
        """
        text = raw.get(_KEY)
        if not isinstance(text, str):
            keys = ", ".join(raw)
            raise BadDocumentError(
                f"{self._name}, example {place}: no text under {_KEY!r}, only {keys} - "
                "use a data set with that column"
            )
        return text

    def held_out(self) -> "Stream | None":
        """Return the validation split, if there is one."""
        try:
            return Stream(self._name, self._configuration, "validation")
        except ValueError:
            # What `datasets` raises for a split that a data set does not have.
            return None


Documents = JsonLines | Stream
"""Can be read from any place."""


def open_documents(dataset: str, configuration: str | None) -> Documents:
    """Open what a configuration names, by its form."""
    if dataset.endswith(JSONL):
        return JsonLines(Path(dataset))
    return Stream(dataset, configuration)
