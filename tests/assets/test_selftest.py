"""The self-test of an image: its cases run for real, and what it says of one that fails."""

import json
import subprocess
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import image_probe
import pytest
import selftest_cases

from megatron_eks.catalog.images import TestLevel
from megatron_eks.plan.cluster.images import REPOSITORIES
from megatron_eks.project import ROOT

SELFTEST = ROOT / "assets" / "images" / "selftest.py"
PYTHON = ROOT / ".venv-programs" / "bin" / "python"


def selftest(python: Path, folder: Path, *cases: str) -> tuple[int, dict[str, list[str]], str]:
    """Run cases of the Megatron image; return exit code, summary and stderr."""
    words = [word for case in cases for word in ("--case", case)]
    report = ("--report", str(folder / "reports" / "megatron.xml"))
    done = subprocess.run(  # noqa: S603 -- the program under test
        [str(python), str(SELFTEST), "--image", "megatron", "--level", "full", *words, *report],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.programs
def test_cases_that_pass_are_reported(tmp_path):
    """Data preparation with one and several workers, and the storage test, really run."""
    code, summary, said = selftest(PYTHON, tmp_path, "prepare", "workers", "storage")
    assert code == 0, said
    assert summary["passed"] == ["prepare", "storage", "workers"]
    suite = ET.parse(tmp_path / "reports" / "megatron.xml").getroot()  # noqa: S314 -- ours
    assert (suite.get("tests"), suite.get("failures")) == ("3", "0")
    assert [case.get("classname") for case in suite] == [
        "megatron.standard",
        "megatron.standard",
        "megatron.full",
    ]


@pytest.mark.programs
def test_a_case_that_fails_ends_with_4_and_its_last_words(tmp_path):
    """Here is no image, so the gate refuses; the others run all the same."""
    code, summary, said = selftest(PYTHON, tmp_path, "gate", "prepare")
    assert code == 4
    assert (summary["failed"], summary["passed"]) == (["gate"], ["prepare"])
    assert "error gate: failed: exit code 4 - run it alone: selftest.py" in said
    assert "install libfabric with AWS's EFA installer" in said
    suite = ET.parse(tmp_path / "reports" / "megatron.xml").getroot()  # noqa: S314 -- ours
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "exit code 4"


def test_each_level_has_cases_and_holds_those_below():
    """The names are those of the cluster file."""
    assert get_args(TestLevel) == selftest_cases.LEVELS
    found = [{case.name for case in selftest_cases.up_to(level)} for level in get_args(TestLevel)]
    assert found[0] < found[1] < found[2]
    assert len(found[2]) == len(selftest_cases.CASES)


def test_every_image_has_modules_to_import():
    """What a job starts in it, and scripts of others, find them."""
    assert image_probe.MODULES.keys() == REPOSITORIES.keys()


def test_a_command_that_never_ends_is_ended(monkeypatch):
    """A build machine costs money while it waits."""
    monkeypatch.setattr(selftest_cases, "_SECONDS", 0.5)
    with pytest.raises(selftest_cases.FailedError, match="no end after"):
        selftest_cases._run("/bin/sleep", "60")  # noqa: SLF001 -- what every case goes through


@pytest.mark.parametrize(
    ("losses", "says"), [([3.0] * 6, "went from 3.000 to 3.000"), ([3.0], "1 steps instead")]
)
def test_a_run_that_learns_nothing_fails(losses, says):
    """A trainer that steps and does not learn is broken."""
    with pytest.raises(selftest_cases.FailedError, match=says):
        selftest_cases._falls(losses)  # noqa: SLF001 -- what every training case ends with
