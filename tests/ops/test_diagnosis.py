"""`meks logs --explain --file PATH`: what is printed for people and for programs."""

import io
import json
from pathlib import Path

import jsonschema
import pytest

from megatron_eks.__main__ import main
from tests import schemas

ROOT = Path(__file__).parents[2]
STEP = " iteration   7/   1000 | consumed samples: 64 | lm loss: 2.1E+00 |"
KILLED = "[rank3]: failed (exitcode: -9) local_rank: 3 (pid: 99) of binary: /usr/bin/python3"
FULL = "[rank5]: OSError: [Errno 28] No space left on device: '/shared/x'"
WAITED = (
    "[rank0]:[E ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective operation timeout"
)


def explained(*lines, output, capsys, monkeypatch):
    """Explain lines from standard input; return the exit code and what was printed."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    ended = main(["logs", "--explain", "--file", "-", "-o", output])
    return ended, capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([STEP, WAITED, FULL], ("MEKS-0922", True, 5, 7, ["MEKS-0962"])),
        ([KILLED], ("MEKS-0956", False, 3, None, [])),
        ([WAITED], (None, False, 0, None, ["MEKS-0962"])),
        (["all is well"], (None, False, None, None, [])),
        ([], (None, False, None, None, [])),
    ],
    ids=["cause", "likely", "followed", "unknown", "empty"],
)
def test_data_are_as_their_schema_says(lines, wanted, capsys, monkeypatch):
    """Of every kind of answer; the exit code says whether there is a cause."""
    ended, printed = explained(*lines, output="json", capsys=capsys, monkeypatch=monkeypatch)
    found = schemas.read("explanation", printed)
    cascades = [each["code"] for each in found["cascades"]]
    told = tuple(found[name] for name in ("code", "certain", "rank", "last_step"))
    assert (*told, cascades) == wanted
    assert (ended, found["lines"]) == (0 if wanted[0] else 3, len(lines))


def test_schema_knows_no_other_field(capsys, monkeypatch):
    """A new one has to be described."""
    _, printed = explained(FULL, output="json", capsys=capsys, monkeypatch=monkeypatch)
    with pytest.raises(jsonschema.ValidationError):
        schemas.checked("explanation", {**json.loads(printed), "more": 1})


def test_a_path_is_a_log_and_no_job(tmp_path, capsys):
    """As people type it."""
    (tmp_path / "saved.log").write_text(FULL)
    assert main(["logs", "--explain", str(tmp_path / "saved.log")]) == 0
    assert "MEKS-0922" in capsys.readouterr().out


@pytest.mark.parametrize("output", ["json", "table"])
def test_a_secret_in_a_line_is_not_shown(output, capsys, monkeypatch):
    """What is seen is copied into tickets; the cause is found all the same."""
    line = f"{FULL} password=Tr0ub4dor"
    _, printed = explained(line, output=output, capsys=capsys, monkeypatch=monkeypatch)
    assert "MEKS-0922" in printed
    assert "password=(redacted)" in printed
    assert "Tr0ub4dor" not in printed


@pytest.mark.parametrize(("line", "head"), [(FULL, "cause"), (KILLED, "likely")])
def test_text_says_likely_where_it_is_not_certain(line, head, capsys, monkeypatch):
    """As `certain` does for programs."""
    _, printed = explained(line, output="table", capsys=capsys, monkeypatch=monkeypatch)
    assert printed.startswith(f"{head}   ")


def test_an_ended_run_is_said_to_have_ended_well(capsys, monkeypatch):
    """With its last step and checkpoint, and exit code 0; what it outlived stands below."""
    saved = "successfully saved checkpoint from iteration    1000 to /shared/checkpoints/x"
    lines = [FULL, STEP, STEP.replace("7/", "1000/"), saved]
    ended, printed = explained(*lines, output="table", capsys=capsys, monkeypatch=monkeypatch)
    assert ended == 0
    assert printed.startswith("ended    the run ended well, step 1000 of 1000, checkpoint")
    assert "It did not end the run." in printed


def test_no_option_is_broken(capsys, monkeypatch):
    """It is copied into a job."""
    saving = "saving checkpoint at iteration 40 to /shared/ckpt in torch_dist format"
    lines = [saving, "CheckpointingException: ShardedTensor.flattened_range is not supported."]
    _, printed = explained(*lines, output="table", capsys=capsys, monkeypatch=monkeypatch)
    assert "--dist-ckpt-optim-fully-reshardable" in printed
