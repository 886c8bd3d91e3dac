"""A Hugging Face tokenizer, from a directory or by name, and the token that ends a document."""

import json
from pathlib import Path
from typing import Any

_FILE = "tokenizer.json"
_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")


class BadTokenizerError(ValueError):
    """There is no tokenizer to use; the text says why and what to do."""


class Tokenizer:
    """Turns a document into tokens: no token before it, the end of document after it."""

    def __init__(self, name: str) -> None:
        """Open it.

        Raises BadTokenizerError if it is not there, not readable, or has no end of document.
        """
        from tokenizers import Tokenizer as Rust  # noqa: PLC0415 -- indexed data does without it

        path = _find(name, _FILE)
        if path is None:
            raise BadTokenizerError(f"{name}: no {_FILE} - download the tokenizer once")
        try:
            self._rust: Any = Rust.from_file(str(path))
        except Exception as problem:  # the Rust library has no exceptions of its own
            raise BadTokenizerError(f"{path}: {problem} - download it again") from problem
        self.vocabulary: int = max(self._rust.get_vocab(with_added_tokens=True).values()) + 1
        self.end: int = self._find_end(name)

    def encode(self, text: str) -> list[int]:
        """Return a document's tokens; none at all for an empty text."""
        if not text:
            return []
        return [*self._rust.encode(text, add_special_tokens=False).ids, self.end]

    def _find_end(self, name: str) -> int:
        for file in _SETTINGS:
            path = _find(name, file)
            value = json.loads(path.read_text()).get("eos_token") if path else None
            content = value.get("content") if isinstance(value, dict) else value
            number = self._rust.token_to_id(content) if content else None
            if number is not None:
                return int(number)
        raise BadTokenizerError(
            f"{name}: no end of document - set eos_token in tokenizer_config.json"
        )


def _find(name: str, file: str) -> Path | None:
    if Path(name).is_dir():
        path = Path(name) / file
        return path if path.is_file() else None
    if Path(name).is_absolute():
        return None
    from huggingface_hub import hf_hub_download  # noqa: PLC0415 -- only a name needs the network
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415 -- likewise

    try:
        return Path(hf_hub_download(name, file))
    except EntryNotFoundError:
        return None
    except Exception as problem:
        raise BadTokenizerError(
            f"{name}: {problem} - put the tokenizer on the shared file system and name its folder"
        ) from problem
