"""Each code's whole sentence, once."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.guards.codes import Rule
from tests.guards import slips

pytestmark = pytest.mark.sweep


def test_sentences(snapshot, monkeypatch):
    """Of the first row of the tables beside this file that a code is found with."""
    told: dict[str, str] = {}

    def listen(found: list[Finding]) -> set[str]:
        for each in found:
            told.setdefault(each.code, str(each))
        return {each.code.name for each in found}

    monkeypatch.setattr(slips, "_codes", listen)
    for test, row in _rows():
        listed = (each if isinstance(each, set) else [each] for each in row)
        words = {word for each in listed for word in each if isinstance(word, str)}
        codes = {each for each in (*Code, *Rule) if words & {each, each.name}}
        if codes - told.keys():
            test(*row)
    assert "\n".join(told[code] for code in sorted(told)) == snapshot


# A test takes whatever its table holds.
def _rows() -> Iterator[tuple[Any, Any]]:
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for test in vars(import_module(f"{__package__}.{file.stem}")).values():
            for mark in getattr(test, "pytestmark", ()):
                if mark.name == "parametrize" and not isinstance(mark.args[0], str):
                    yield from ((test, row) for row in mark.args[1])
