"""Saved logs that did not come whole through a pod's log are not taken for whole."""

from datetime import date

import pytest

from megatron_eks.ops.failure import Failure
from megatron_eks.ops.jobs import records
from megatron_eks.ops.jobs.logs import Options
from megatron_eks.ops.programs import Here
from megatron_eks.project import ROOT, load_project
from tests.consoles import console, written


class Losing:
    """A pod's place whose log loses lines; the program is the real one."""

    name = "shared"

    def __init__(self, folder, lost):
        self._folder, self._lost = folder, lost

    def run(self, program, args, tell):
        """Run the real program on a folder of this machine."""
        heard: list[str] = []
        ended = Here({}).run(program, [str(self._folder), *args[1:]], heard.append)
        for number, line in enumerate(heard):
            if number not in self._lost:
                tell(line)
        return ended


@pytest.fixture
def folder(tmp_path):
    """Return a rank's log."""
    (tmp_path / "0001").mkdir()
    (tmp_path / "0001" / "rank-00000.log").write_text("one\ntwo\nthree\n")
    return tmp_path


def read(folder, lost, **options):
    """Return what is printed."""
    told = console()
    project = load_project(ROOT / "cluster.yaml", date(2026, 11, 22))
    record = records.Record(Losing(folder, lost), project, "megatron-gpt-7b", told)
    record.show(Options(**options))
    return written(told).splitlines()


def test_all_lines_come(folder):
    """With their rank."""
    assert read(folder, ()) == ["[0] one", "[0] two", "[0] three"]
    assert read(folder, (), tail=1, rank=0) == ["[0] three"]


def test_a_lost_line_is_noticed(folder):
    """The program said how many there were, and their checksum."""
    with pytest.raises(Failure, match=r"MEKS-0887 2 lines of 3 came whole - narrow it down"):
        read(folder, (1,))
