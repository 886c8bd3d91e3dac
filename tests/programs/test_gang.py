"""When a node counts as lost: only what its file shows, round by round."""

import pytest

from megatron_eks.programs.start import gang
from megatron_eks.programs.start.gang import Record

_PATIENCE = 3


def _look(*records: Record | None) -> list[str | None]:
    peer = gang.Peer(1, _PATIENCE)
    return [peer.look(record) for record in records]


def _alive(first: int, last: int, start: str = "a") -> list[Record]:
    return [Record(start, count) for count in range(first, last + 1)]


_SILENT = f"is silent for {_PATIENCE} rounds"


@pytest.mark.parametrize(
    ("records", "last"),
    [
        pytest.param(_alive(1, 9), None, id="lives"),
        pytest.param([None] * 9, None, id="pulls its image"),
        pytest.param([Record("old", 7)] * 6, None, id="left by an earlier start"),
        pytest.param(
            [Record("old", 7, "failed")] * 7, "has not come back for 6 rounds", id="met the old one"
        ),
        pytest.param([Record("old", 7), *_alive(1, 3)], None, id="starts after this node"),
        pytest.param([Record("old", 7, "failed"), *_alive(1, 3)], None, id="failed earlier"),
        pytest.param([*_alive(1, 3), *_alive(3, 3) * 2, *_alive(4, 4)], None, id="slow storage"),
        pytest.param([*_alive(1, 3), None, None, *_alive(4, 4)], None, id="half a record"),
        pytest.param([*_alive(1, 3), *_alive(3, 3) * 3], _SILENT, id="node lost"),
        pytest.param([*_alive(1, 3), Record("a", 4, "failed")], "has lost its ranks", id="failed"),
        pytest.param(
            [Record("a", 1), Record("a", 2, "failed")], "has lost its ranks", id="failed early"
        ),
        pytest.param([*_alive(1, 3), Record("b", 1)], "has started anew", id="pod replaced"),
        pytest.param([*_alive(1, 3), *[Record("a", 4, "finished")] * 9], None, id="finished"),
        pytest.param(
            [*_alive(1, 3), Record("a", 4, "ended"), Record("b", 1)], "has started anew", id="again"
        ),
    ],
)
def test_a_peer(records, last):
    """Only the last round decides; before it the peer was in order."""
    found = _look(*records)
    assert found[-1] == last
    assert set(found[:-1]) <= {None}


def test_a_heart_beats_in_place(tmp_path):
    """Readers see each beat whole, under one name for one start and another for the next."""
    path = gang.path_of(tmp_path / "heartbeats", 7)
    heart = gang.Heart(path, "a")
    heart.beat()
    heart.beat("finished")
    assert gang.read(path) == Record("a", 2, "finished")
    size = path.stat().st_size
    gang.Heart(path, "b").beat()
    assert gang.read(path) == Record("b", 1)
    assert (path.name, path.stat().st_size) == ("node-00007", size)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"start": "a"}', '{"start": "a", "count": "x", "state": "running"}']
)
def test_what_is_no_record_is_none(tmp_path, content):
    """A reader may come while a file is being made."""
    path = tmp_path / "node-00001"
    path.write_text(content)
    assert gang.read(path) is None
