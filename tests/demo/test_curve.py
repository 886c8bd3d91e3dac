"""What the demo reads from Megatron's log, compares and draws."""

import struct

import pytest

from megatron_eks.demo import curve, picture

LINE = " iteration {:8d}/     100 | consumed samples: 8 | lm loss: {:.6E} | loss scale: 1.0 |\n"


def log(*losses):
    """Write a log of iterations and losses."""
    return "".join(LINE.format(*each) for each in losses)


def test_a_log_has_one_part_for_each_start():
    """A start begins where iterations go back."""
    text = log((1, 5.0), (2, 4.5), (3, 4.0)) + "noise\n" + log((2, 4.5), (3, 4.25))
    assert curve.starts(text) == [{1: 5.0, 2: 4.5, 3: 4.0}, {2: 4.5, 3: 4.25}]


def test_the_second_line_of_a_start_is_a_mean():
    """Of its first two iterations, as Megatron prints it."""
    before = {1: 9.0, 2: 8.0, 3: 6.0, 4: 5.0}
    found = curve.compare(before, {2: 8.0, 3: 7.0, 4: 5.0, 5: 4.0})
    assert (found.iterations, found.difference) == (3, 0.0)


def test_another_loss_is_seen():
    """A run that does not resume where it was differs at once."""
    found = curve.compare({1: 9.0, 2: 8.0, 3: 7.0}, {2: 8.5, 3: 7.5})
    assert found.difference == pytest.approx(0.5)


def test_the_picture_is_a_png():
    """Of 640 by 480 pixels."""
    png = picture.draw([{1: 5.0, 2: 4.0}, {2: 4.0, 3: 3.0}], ("before the kill", "after it"))
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (640, 480)
