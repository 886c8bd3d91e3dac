"""Loss and speed as a line of signs and as a picture."""

import math

import pytest

from megatron_eks.ops.jobs import curves
from megatron_eks.ops.jobs.curves import BLOCKS, Line


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], BLOCKS),
        ([5, 5, 5], 3 * BLOCKS[0]),
        ([8, math.nan, 1], f"{BLOCKS[-1]}!{BLOCKS[0]}"),
        ([math.inf, math.nan], "!!"),
        ([], ""),
    ],
)
def test_a_course_in_one_line(values, line):
    """From low to high; what is no number is told."""
    assert curves.sparkline(values) == line


def test_a_long_course_is_short_and_still_rises():
    """A window of 80 columns holds it with what is said beside it."""
    drawn = curves.sparkline([*range(4001)])
    assert (len(drawn), set(drawn)) == (28, set(BLOCKS))
    assert [*drawn] == sorted(drawn, key=BLOCKS.index)


def test_a_picture_of_a_hundred_thousand_steps_is_small_and_keeps_its_peaks():
    """A page with it opens at once."""
    points = [(step, 1e3 if step == 54321 else 2.0) for step in range(100_000)]
    drawn = str(curves.draw("Loss", [Line(points, 100_000)]))
    assert len(drawn) < 30_000
    assert "1,000" in drawn
    assert ",0.0 " in drawn


def test_what_is_no_number_is_a_gap():
    """And a course that is lost begins where the other one ends."""
    points = [(1, 3.0), (2, math.nan), (3, 2.0), (4, 1.5), (5, 1.4)]
    drawn = str(curves.draw("Loss", [Line(points, 4)]))
    assert (drawn.count('class="line"'), drawn.count('class="line lost"')) == (2, 1)


def test_a_band_far_from_the_course_does_not_flatten_it():
    """It is left out, and the figures stand in the note."""
    line = Line([(1, 100.0), (2, 110.0)], 2)
    near, far = (str(curves.draw("Speed", [line], band=band)) for band in ((80, 120), (8e5, 9e5)))
    assert ('class="band"' in near, 'class="band"' in far) == (True, False)
    assert "132" in near
