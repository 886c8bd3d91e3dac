"""Every value of a Megatron-Bridge configuration by its block, and what may stand there."""

from dataclasses import dataclass

from megatron_eks.catalog.tables import entries, sections

_TABLE = sections("bridge_fields.txt")
VERSION = _TABLE["version"].strip()
"""Of megatron-bridge."""


@dataclass(frozen=True)
class Field:
    """What may stand in a place."""

    kinds: frozenset[str]
    """Of `bool`, `int`, `float` and `str`; empty where a job file can write none."""
    choices: tuple[str, ...]
    """The words, where only some are taken."""


_KINDS = {"b": "bool", "i": "int", "f": "float", "s": "str"}


def _read() -> dict[str, dict[str, Field]]:
    choices = {name: words.split() for name, words in entries(_TABLE["choices"])}
    blocks: dict[str, dict[str, Field]] = {}
    for head, names in entries(_TABLE["fields"]):
        block, letters = head.split()[:2]
        kinds = frozenset(_KINDS[letter] for letter in letters if letter in _KINDS)
        for name in names.split():
            words = tuple(choices.get(f"{block}.{name}", ()))
            blocks.setdefault(block, {})[name] = Field(kinds, words)
    return blocks


FIELDS = _read()

ARCHITECTURES = frozenset(_TABLE["architectures"].split())
"""Classes of transformers that it converts."""

NOT_OF_LLAMA = frozenset(
    name
    for head, names in entries(_TABLE["fields"])
    if head.endswith("others")
    for name in names.split()
)
"""Fields of other models' classes, which Llama's does not have."""
