"""The mutants are what their operators say, and the committed file is whole."""

import pytest

from tests.baseline.code_mutants import COUNT, committed
from tests.baseline.code_operators import slips

_SOURCE = '''
LIMIT = 3

def fits(size, names=(), *, strict=False):
    """Say whether it does, if size < 1 or not."""
    if not names and size <= LIMIT:
        print(f"{size < 2}")
        return [name for name in names if name is not None]
    while size > 0:
        size -= 1
    return None
'''


@pytest.mark.parametrize(
    ("operator", "lines"),
    [
        ("turn", ["if not names and size > LIMIT:", "if name is None]", "while size <= 0:"]),
        ("shift", ["if not names and size < LIMIT:", "while size >= 0:"]),
        ("and or", ["if not names or size <= LIMIT:"]),
        ("drop not", ["if names and size <= LIMIT:"]),
        ("one more", ["LIMIT = 4", "while size > 1:", "size -= 2"]),
        ("true false", ["strict=True"]),
        ("return nothing", ["return None"]),
        ("drop statement", ["pass", "pass"]),
        ("always", ["if True:", "if True]", "while True:"]),
        ("never", ["if False:", "if False]", "while False:"]),
    ],
)
def test_a_slip_changes_one_place(operator, lines):
    """Docstrings, f-strings and statements of a module stay as they are."""
    before = _SOURCE.splitlines()
    changed = []
    for place, slip in slips("fits.py", _SOURCE.encode()).items():
        after = slip.made_in(_SOURCE.encode()).decode().splitlines()
        different = [new for old, new in zip(before, after, strict=True) if old != new]
        assert len(different) == 1
        if place.operator == operator:
            changed += different
    assert len(changed) == len(lines)
    assert all(line in each for line, each in zip(lines, changed, strict=True))


def test_a_place_is_found_when_other_lines_have_changed():
    """Equal lines are told by their order."""
    places = [*slips("a.py", b"x = 1\ny = 2\nx = 1\n")]
    moved = slips("a.py", b"z = 0\nx = 1\nx = 1\n")
    assert [moved[place].row for place in (places[0], places[2])] == [2, 3]
    assert places[1] not in moved


def test_the_committed_file_has_them_all():
    """A place is drawn once, and a killer is a test of those that stay."""
    mutants = committed()
    assert len({mutant.place for mutant in mutants}) == len(mutants) == COUNT
    assert {mutant.outcome for mutant in mutants} <= {"killed", "survived", "equivalent", "not run"}
    killers = {mutant.tests[0] for mutant in mutants if mutant.killed}
    assert killers
    assert not [test for test in killers if test.startswith(("tests/rules/", "tests/mutation/"))]
