"""`meks report` of a month: what is left of records, real starts' lines, and a pool's hours."""

import os
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from megatron_eks.ops.cluster import month
from megatron_eks.ops.cluster.billing import PoolHours
from megatron_eks.ops.cluster.month import Month
from megatron_eks.ops.programs import Here
from megatron_eks.programs import record_files
from tests.ops.test_report import LINES, NAME, _Reader, project, ran

__all__ = ["project"]

NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)
SINCE = NOW - timedelta(days=30)
DAY = 24 * 3600


def write(folder, lines):
    """Write a record's files of some starts, which ended when their last line says."""
    for line in lines:
        rank, text = line[1], line[4:]
        if begun := re.match(r"record: start (\d+)", text):
            start = folder / begun[1]
            start.mkdir(parents=True, exist_ok=True)
        file = start / f"rank-0000{rank}.log"
        with file.open("a") as out:
            out.write(f"{text}\n")
    (folder / "keep-days").write_text("7")


class Local:
    """The real program, on a folder in the place of the mounted one."""

    name = "shared"

    def __init__(self, logs):
        """Take the folder of all jobs' logs."""
        self._logs = str(logs)

    def run(self, program, args, tell):
        """Run it on this machine."""
        return Here(dict(os.environ)).run(program, [self._logs, *args[1:]], tell)


@pytest.fixture
def runs(tmp_path, project):
    """Return the runs of a failed job, of one submitted twice, and of one without a file."""
    logs = tmp_path / "logs"
    write(logs / NAME, LINES)
    again = [
        *ran(1, "01:00:00", "02:00:00", 0, 50, saves=(50,)),
        *ran(2, "03:00:00", "04:00:00", 50, 90),
    ]
    write(logs / "megatron-gpt-7b", again)
    write(logs / "unknown", ran(1, "05:00:00", "06:00:00", 0, 60))
    # A week later most of it is gone.
    old = datetime.now(tz=UTC).timestamp() - 9 * DAY
    for each in sorted(logs.glob("*/0*/*")) + sorted(logs.glob("*/0*")):
        os.utime(each, (old, old))
    record_files.prune(logs)
    assert [each.name for each in logs.glob("*/0*")] == []
    lives = [*ran(2, "07:00:00", "07:30:00", 60, 70)]
    write(logs / "unknown", [each for each in lives if "record: ended" not in each])
    return tuple(month.runs_of(month.told(Local(logs), project, 30), project, NOW))


def test_what_goes_with_its_days_counts_for_the_month(runs):
    """The same as the job's own report has it: starts, lost steps, causes, useful time."""
    found = {(each.job, each.phase, len(each.starts)) for each in runs}
    assert found == {
        (NAME, "Failed", 3),
        ("megatron-gpt-7b", "Succeeded", 1),
        ("unknown", "Succeeded", 1),
        ("unknown", "Running", 1),
    }
    assert [each.job for each in runs].count("megatron-gpt-7b") == 2
    (failed,) = [each for each in runs if each.job == NAME]
    assert [each.lost for each in failed.starts] == [30, 20, 20]
    assert [each.code for each in failed.starts] == ["MEKS-0901", "MEKS-0905", "MEKS-0901"]
    assert failed.hours(SINCE) == pytest.approx(2 * (18000 + 16140 + 51840) / 3600)
    assert failed.useful == pytest.approx(2 * 1700 * 45 / 3600)
    late = datetime(2026, 11, 22, 23, tzinfo=UTC)
    assert failed.hours(late) == pytest.approx(2 * 59 / 60)


@pytest.fixture
def found(runs, project):
    """Return all that a page tells."""
    pools = (PoolHours(project.cluster.pools[0], 3, 100.0, 20.0),)
    own = tuple(replace(each, usd_each=20.0 if each.pool else None) for each in runs)
    return Month("techpulse", SINCE, NOW, own, pools, ("a note",))


def test_its_first_screen_says_what_a_month_cost_and_what_nobody_used(found):
    """Two jobs held 2 x 25.9 node-hours of 100."""
    reader = _Reader()
    reader.feed(month.page(found))
    text = " ".join(reader.words).partition("By job")[0]
    for said in ("techpulse: 2026-10-24 to 2026-11-23", "3 succeeded, 1 failed, 1 running"):
        assert said in text, said
    idle = 100 - sum(each.hours(SINCE) for each in found.runs if each.pool)
    assert f"{idle:,.1f} h" in text
    assert f"{idle * 20:,.2f} USD" in text
    # Whose nodes nobody knows cost what nobody knows.
    assert "unknown USD" in text


def test_causes_are_counted_and_teams_have_rows(found):
    """The most frequent first; without teams there is no such table."""
    page = month.page(found)
    causes = re.findall(r"<td[^>]*>([^<]*)</td>", page.partition("What ended starts")[2])
    assert causes[0] == "2"
    assert causes[2].endswith("[MEKS-0901]")
    assert "By team" not in page
    of_two = [replace(each, team="blue" if each.pool else "red") for each in found.runs]
    text = month.page(replace(found, runs=tuple(of_two)))
    rows = text.partition("By team")[2].partition("By job")[0]
    # The run without a file goes on since yesterday.
    assert 0 < rows.index("red") < rows.index("blue")


def test_a_month_without_anything_has_a_page(found):
    """It says so."""
    page = month.page(replace(found, runs=(), pools=()))
    assert "No job has left a record in this time." in page
