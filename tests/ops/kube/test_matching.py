"""Patterns of `meks logs --grep`: wrong ones, slow ones, long lines."""

import re
import time

import pytest

from megatron_eks.__main__ import main
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import matching


@pytest.mark.parametrize(
    ("pattern", "place"), [("a(b", 1), ("x[", 1), ("*", 0), ("ok(?P<1>x)", 6), ("\\", 0)]
)
def test_a_wrong_pattern_is_shown_with_a_mark_below(pattern, place):
    """The caret stands below the character that is wrong."""
    with pytest.raises(matching.BadPatternError) as raised:
        matching.compiled(pattern)
    found, shown, mark = str(raised.value).splitlines()
    assert f"at character {place + 1}" in found
    assert shown == f"  {pattern}"
    assert mark == f"  {' ' * place}^"


def test_a_wrong_pattern_is_a_usage_error(capsys):
    """Before anything is asked of a cluster."""
    with pytest.raises(SystemExit) as raised:
        main(["logs", "job", "--grep", "a(b"])
    assert raised.value.code == 2
    assert "argument --grep: missing ), unterminated subpattern, at character 2" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("other", [["--grep", "x"], ["--follow"]])
def test_grep_and_explain_exclude_each_other(capsys, other):
    """A cause may be in any line."""
    with pytest.raises(SystemExit) as raised:
        main(["logs", "job", *other, "--explain"])
    assert raised.value.code == 2
    assert "leave out --grep and --follow" in capsys.readouterr().err


def test_the_log_before_a_restart_is_explained_too(capsys):
    """As `meks explain 0965` tells people to; here without a cluster file."""
    assert main(["logs", "job", "--previous", "--explain", "--cluster", "none.yaml"]) == 2
    assert "usage:" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "line"),
    [("(a+)+$", "a" * 40 + "b"), ("(.*)*x(.*)*y", "ab" * 4096), (r"(\w+\s?)*:", "word " * 2000)],
)
def test_a_pattern_that_never_ends_is_ended(pattern, line):
    """With what to do; the time limit is on the process, not on the pattern."""
    started = time.monotonic()
    with pytest.raises(Failure, match=r"MEKS-0766 --grep .* is not done with a line of") as raised:
        matching.matches(re.compile(pattern), line, seconds=0.2)
    assert raised.value.code == 2
    assert time.monotonic() - started < 5


def test_a_line_is_looked_at_as_far_as_is_said():
    """A line of a hundred megabytes comes in pieces, of which each is looked at."""
    pattern = re.compile("needle")
    assert matching.matches(pattern, "x" * (matching.LONGEST - 6) + "needle")
    assert not matching.matches(pattern, "x" * matching.LONGEST + "needle")
    assert matching.matches(None, "anything")
