"""The index of patterns: it may try too many, and never leaves one out that fits."""

import re

import pytest

from megatron_eks.diagnosis.index import Index, words
from megatron_eks.diagnosis.signatures import signatures
from tests.diagnosis.known import EXCERPTS


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("fallen off the bus", {"fallen off the bus"}),
        ("colou?r of it", {"r of it"}),
        ("(GPU|NIC) is lost", {" is lost"}),
        ("(GPU is lost|NIC is gone) *", {"GPU is lost", "NIC is gone"}),
        ("(GPU is lost)?|NIC", set()),
        (r"\bexit(ed)?\b with code \d+", {" with code "}),
        (r"(?<!not )found(?! here)", {"found"}),
        (r"[(|)]\(pid\(?s?\)? ended", {" ended"}),
        ("(?i:no case) at all", {" at all"}),
        ("(?P<word>abcd)(efgh){0,2}x{3}", {"abcd"}),
    ],
)
def test_words_are_those_that_a_fitting_text_holds(pattern: str, wanted: set[str]) -> None:
    """Of a sequence the best, of alternatives all, of what may be missing none."""
    assert words(pattern) == wanted


def test_no_pattern_that_fits_is_left_out() -> None:
    """Each on lines from all excerpts, as if there were no index."""
    table = [each.shown.pattern for each in signatures()]
    index = Index(table)
    lines = {line for each in EXCERPTS.values() for line in each["log"].splitlines()}
    # A thousand patterns on every line would take minutes.
    for line in sorted(lines)[::50]:
        fitting = {place for place, each in enumerate(table) if re.search(each, line)}
        assert fitting <= set(index.places(line)), line


def test_hardly_a_pattern_is_tried_on_every_line() -> None:
    """A healthy run's lines would take a millisecond each."""
    without = [each.name for each in signatures() if not words(each.shown.pattern)]
    assert without == []
