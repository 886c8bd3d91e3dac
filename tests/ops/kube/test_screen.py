"""What stays on a terminal that is redrawn in place."""

from megatron_eks.ops.jobs.watching import fitted


def test_a_window_that_is_large_enough_shows_all():
    """Long lines are broken at words, as the terminal would not."""
    assert fitted(["a warning - its remedy", ""], 14, 24) == ["a warning -", "  its remedy", ""]


def test_what_does_not_fit_is_counted():
    """The first lines stay, above the line of the cursor."""
    assert fitted(map(str, range(10)), 80, 6) == ["0", "1", "2", "3", "... and 6 more lines"]
    assert len(fitted(map(str, range(5)), 80, 6)) == 5


def test_signs_that_move_the_cursor_are_written_out():
    """An event's message may hold anything."""
    assert fitted(["a\x1b[2Jb\rc"], 80, 24) == ["a\\x1b[2Jb\\rc"]
