"""`meks explain`: every code has its meaning, and docs/rules.md lists them."""

import io
import re
from pathlib import Path

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.config.explanations import explanations, removed
from megatron_eks.diagnosis.codes import LogCode
from megatron_eks.guards.codes import Rule
from megatron_eks.ops import explain

ROOT = Path(__file__).parents[2]
TOLD = re.compile(r"(error|warning) (MEKS-[0-9]{4})")


def test_every_code_is_explained():
    """No code is without what, why, remedy and source; none is explained that does not exist."""
    assert set(explanations()) ^ {*Code, *Rule, *LogCode} == set()
    assert all(all(vars(meaning).values()) for meaning in explanations().values())


def test_levels_are_those_of_real_findings():
    """The exact messages of the tests' tables bear no level that the explanation lacks."""
    tables = ROOT.glob("tests/config/*_errors.yaml")
    told = {match for path in tables for match in TOLD.findall(path.read_text())}
    levels = {(level, code) for level, code in told}
    assert {code for _, code in levels} <= explanations().keys()
    wrong = [each for each in levels if each[0] not in explanations()[each[1]].level]
    assert wrong == []


@pytest.mark.parametrize("name", ["MEKS-0502", "meks-0502", "0502"])
def test_explain(name):
    """A code is found by its number, and told in six lines."""
    out = io.StringIO()
    assert explain.run(name, "table", out) == 0
    lines = out.getvalue().splitlines()
    keys = ["code", "level", "what", "why", "remedy", "source"]
    assert [line.split()[0] for line in lines] == keys
    assert lines[0] == "code    MEKS-0502"


def test_a_page_is_printed(capsys):
    """Messages name pages, and an installed package has no checkout beside it."""
    out = io.StringIO()
    assert explain.run("docs/images.md", "table", out) == 0
    assert out.getvalue() == (ROOT / "docs" / "images.md").read_text()
    assert explain.run("docs/image.md", "table", io.StringIO()) == 2
    assert "did you mean docs/images.md?" in capsys.readouterr().err


def test_an_unknown_code_is_refused(capsys):
    """The list of all codes is named."""
    assert explain.run("0599", "table", io.StringIO()) == 2
    assert "docs/rules.md" in capsys.readouterr().err


def test_the_document_is_fresh():
    """`make generate` was run after the last change of a meaning."""
    text = explain.RULES.read_text()
    assert explain.rules(text) == text


def test_a_removed_code_says_why():
    """Whoever meets one in an old log or an allowance is told."""
    out = io.StringIO()
    assert explain.run("0668", "table", out) == 0
    assert out.getvalue().startswith("MEKS-0668 was removed, because ")
    assert not removed().keys() & explanations().keys()
