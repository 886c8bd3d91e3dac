"""A Hugging Face tokenizer, from a directory or by name, and the token that ends a document."""

from pathlib import Path

from megatron_eks.programs.prepare import tokenizer
from megatron_eks.programs.prepare.job import PrepareError

_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


class BadTokenizerError(ValueError):
    """There is no tokenizer to use; the text says why and what to do."""


class Tokenizer:
    """Turns a document into tokens: no token before it, the end of document after it."""

    def __init__(self, name: str) -> None:
        """Open it.

        Raises BadTokenizerError if it is not there, not readable, or has no end of document.
        """
        try:
            loaded = tokenizer.load(_directory(name), "tokenizers")
        except PrepareError as problem:
            said = problem.finding
            raise BadTokenizerError(f"{said.subject}: {said.found} - {said.remedy}") from problem
        if loaded.eod is None:
            raise BadTokenizerError(
                f"{name}: no end of document - set eos_token in tokenizer_config.json"
            )
        self.vocabulary, self.end = loaded.numbers, loaded.eod.id
        self._library = loaded.reference.library

    def encode(self, text: str) -> list[int]:
        """Return a document's tokens; none at all for an empty text."""
        if not text:
            return []
        return [*self._library.encode(text, add_special_tokens=False).ids, self.end]


def _directory(name: str) -> Path:
    if Path(name).is_dir() or Path(name).is_absolute():
        return Path(name)
    from huggingface_hub import snapshot_download  # noqa: PLC0415 -- only a name needs the network

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except Exception as problem:
        raise BadTokenizerError(
            f"{name}: {problem} - put the tokenizer on the shared file system and name its folder"
        ) from problem
