"""Tables of names that stand in text files of this folder."""

import re
from pathlib import Path


def sections(name: str) -> dict[str, str]:
    """Return the parts of a file, each by the head in brackets above it."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    _, *parts = re.split(r"^\[(\w+)\]\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))
