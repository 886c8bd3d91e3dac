"""job_logs prints what record has kept, so that it comes through a pod's log whole."""

import json
import os
import shutil
import zlib
from datetime import UTC, datetime

import pytest

from tests.programs import run_program


@pytest.fixture
def folder(tmp_path):
    """Return the logs of a job of two ranks."""
    (start := tmp_path / "0001").mkdir()
    for rank, step in ((0, 1), (11, 2)):
        lines = [f" [2026-11-2{step} 10:0{minute}:00] step {minute}\n" for minute in range(5)]
        (start / f"rank-{rank:05d}.log").write_text("".join(lines))
    (tmp_path / "steps.jsonl").write_text("{}\n")
    return tmp_path


def printed(*words, code=0):
    """Return the ranks' lines; the last line tells their number and checksum."""
    done = run_program.run("job_logs", *words)
    assert done.code == code, done.stderr
    lines = done.stdout.splitlines()[:-1]
    assert done.summary.get("lines", 0) == len(lines)
    checksum = 0
    for line in lines:
        checksum = zlib.crc32(line.encode(), checksum)
    assert done.summary.get("crc32", 0) == checksum
    return lines


def test_all_ranks_are_printed_each_line_with_its_own(folder):
    """As wide as the largest number, in the order of ranks."""
    lines = printed(folder)
    assert len(lines) == 10
    assert lines[0] == "[ 0]  [2026-11-21 10:00:00] step 0"
    assert lines[-1] == "[11]  [2026-11-22 10:04:00] step 4"


def test_a_rank_the_last_lines_and_a_time_narrow_it_down(folder):
    """--since begins with the first later time that the program itself has written."""
    assert printed(folder, "--rank", 11, "--tail", 2) == [
        "[11]  [2026-11-22 10:03:00] step 3",
        "[11]  [2026-11-22 10:04:00] step 4",
    ]
    assert printed(folder, "--tail", 0) == []
    ago = datetime.now(tz=UTC) - datetime(2026, 11, 22, 10, 2, 30, tzinfo=UTC)
    lines = printed(folder, "--since", int(ago.total_seconds()))
    assert [line[-6:] for line in lines] == ["step 3", "step 4"]
    os.utime(folder / "0001" / "rank-00011.log", (0, 0))
    assert printed(folder, "--since", 3600) == []


def test_bytes_that_no_terminal_shows_are_escaped(folder):
    """A bar that redraws itself is its last state; an unfinished line counts."""
    (folder / "0001" / "rank-00000.log").write_bytes(b"a\xffb\n10%\r20%\nbell\x07\nhalf")
    assert printed(folder, "--rank", 0) == [
        *("[0] a\\xffb", "[0] 20%", "[0] bell\\x07", "[0] half"),
    ]


def test_what_is_too_much_is_left_out_and_said(folder):
    """The last lines come, and the number of those that do not."""
    done = run_program.run("job_logs", folder, "--most-bytes", 200)
    assert (done.code, done.summary["lines"], done.summary["left_out"]) == (0, 6, 4)
    assert "4 earlier lines are left out" in done.findings[0]


@pytest.mark.parametrize(
    ("words", "said"), [((), "no record of a job"), (("--rank", "3"), "no record of a job")]
)
def test_no_logs_are_exit_code_3(tmp_path, words, said):
    """A directory without any, and one that is not there."""
    done = run_program.run("job_logs", tmp_path, *words)
    assert (done.code, said in done.findings[0]) == (3, True)
    assert run_program.run("job_logs", tmp_path / "none", *words).code == 3


def test_a_rank_that_is_not_there_is_named_with_those_that_are(folder):
    """0 to the largest."""
    done = run_program.run("job_logs", folder, "--rank", 3)
    assert (done.code, "no rank 3, ranks are 0 to 11" in done.findings[0]) == (3, True)


def test_the_newest_start_is_printed_or_the_one_before(folder):
    """Of a rank that had failed for good its last one, if a pod of that start went on."""
    (folder / "0001" / "rank-00000.log").write_text("record: start 0001, T\none\n")
    for start, number in (("0002", 0), ("0003", 0)):
        (folder / start).mkdir()
        after = f", after {int(start) - 1:04} in this pod" if start == "0002" else ""
        text = f"record: start {start}, T{after}\nof {start}\n"
        (folder / start / f"rank-{number:05}.log").write_text(text)
    # The third start is of a new job: nothing before it has to do with it.
    assert printed(folder, "--both") == ["[0] record: start 0003, T", "[0] of 0003"]
    (folder / "0003" / "rank-00000.log").unlink()
    assert printed(folder, "--tail", 1) == ["[ 0] of 0002", "[11]  [2026-11-22 10:04:00] step 4"]
    assert printed(folder, "--tail", 1, "--before") == ["[ 0] one"]
    assert printed(folder, "--rank", 0, "--both")[1::2] == ["[0] one", "[0] of 0002"]


def test_starts_with_new_pods_each_are_of_the_job_that_was_there(folder):
    """A set's pods know nothing of those before; when the job was made is known."""
    for start in ("0002", "0003"):
        (folder / start).mkdir()
        text = f"record: start {start}, 2026-11-23T10:0{start[-1]}:00Z\nof {start}\n"
        (folder / start / "rank-00000.log").write_text(text)
    for born, before in (("2026-11-23T10:02:00Z", ["[0] of 0002"]), ("2026-11-23T10:03:00Z", [])):
        kept = {"job": {"metadata": {"creationTimestamp": born}}, "pods": {}, "events": {}}
        (folder / "objects-1.json").write_text(json.dumps(kept))
        assert printed(folder, "--rank", 0, "--before")[1:] == before


def test_what_a_long_log_has_lost_is_counted(folder):
    """Files are named by the place of their first byte."""
    (folder / "0001" / "rank-00000.log").write_text("one\n")
    (folder / "0001" / "rank-00000.000000000104.log").write_text("two\n")
    assert printed(folder, "--rank", 0) == [
        *("[0] one", "[0] record: 100 bytes are left out here", "[0] two"),
    ]


def test_what_kubernetes_said_comes_first_unless_it_was_of_an_earlier_job(folder):
    """Also where no rank has written a line."""
    kept = {"job": {"kind": "Job"}, "pods": {"a": {"kind": "Pod"}}, "events": {}}
    (folder / "objects-1.json").write_text(json.dumps(kept))
    (folder / "0001" / "rank-00000.log").write_text("record: start 0001, 2026-11-22T10:00:00Z\n")
    lines = printed(folder, "--objects", "--tail", 1)
    assert lines[:2] == ['[object] {"kind": "Job"}', '[object] {"kind": "Pod"}']
    os.utime(folder / "objects-1.json", (0, 0))
    assert not [line for line in printed(folder, "--objects") if "object" in line]
    shutil.rmtree(folder / "0001")
    assert printed(folder, "--objects") == lines[:2]


def test_all_starts_come_with_the_lines_that_match_and_the_last_of_each(folder):
    """What lies between two ends is long, and of the steps alone there may be thousands."""
    name = "rank-00000.log"
    for number in (2, 3):
        (again := folder / f"000{number}").mkdir()
        head = f"record: start 000{number}, 2026-11-22T10:00:00Z, after 000{number - 1}\n"
        lines = [f"{head}noise\nstep {number}\nnoise\nnoise\nend {number}\n"]
        (again / name).write_text("".join(lines))
    lines = printed(folder, "--all", "--rank", 0, "--match", "record: |step", "--tail", 1)
    assert [line.removeprefix("[0] ")[-6:] for line in lines[:5]] == [f"step {n}" for n in range(5)]
    assert [line.partition(",")[0] for line in lines[5:]] == [
        *("[0] record: start 0002", "[0] step 2", "[0] end 2"),
        *("[0] record: start 0003", "[0] step 3", "[0] end 3"),
    ]
    assert len(printed(folder, "--all", "--rank", 0, "--match", "step")) == 7
    assert run_program.run("job_logs", folder, "--match", "(").code == 2


def test_what_the_others_leave_is_for_the_ranks_that_tell_of_steps(folder):
    """The last rank prints Megatron's, and the first one ours."""
    (folder / "0001" / "rank-00005.log").write_text("nothing\n")
    lines = printed(folder, "--most-bytes", 308)
    assert [line[:4] for line in lines].count("[11]") == 5
