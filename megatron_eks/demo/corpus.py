"""A small corpus without downloads: this project's own documents, and a tokenizer of bytes."""

import json
from pathlib import Path

# Shorter ones are headings, and rows of tables cut in two.
_LEAST_CHARACTERS = 80
_END = "</s>"


def write_documents(root: Path, file: Path) -> int:
    """Write the paragraphs of a checkout's documents, one a line; return their number."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    parts = [part for page in pages for part in page.read_text(encoding="utf-8").split("\n\n")]
    texts = [part for part in parts if len(part) >= _LEAST_CHARACTERS]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return len(texts)


def write_tokenizer(folder: Path) -> None:
    """Write a byte-level BPE without merges: its vocabulary is the 256 bytes and an end."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    end = {"id": 256, "content": _END, "special": True, "normalized": False, **flags}
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    content = {
        "version": "1.0",
        "added_tokens": [end],
        "pre_tokenizer": {**bytes_only, "trim_offsets": False},
        "decoder": {**bytes_only, "trim_offsets": False},
        "model": {"type": "BPE", "vocab": {**_byte_names(), _END: 256}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": _END}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def _byte_names() -> dict[str, int]:
    """Return the printable stand-ins of the `tokenizers` library, in the order of the bytes."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return {chr(byte if byte in printable else next(others)): byte for byte in range(256)}
