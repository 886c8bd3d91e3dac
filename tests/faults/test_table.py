"""The table of faults names tests that there are, for everything that a command may meet."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FAULTS = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())

# Commands that wait, each with its Ctrl-C.
_LONG = (
    "deploy",
    "build",
    "scale",
    "cleanup",
    "submit",
    "apply",
    "cancel",
    "fix",
    "verify",
    "data",
    "ckpt",
)


def test_every_fault_has_tests_that_there_are():
    """By file and name; a test that is renamed is renamed here."""
    missing = [
        test
        for tests in FAULTS.values()
        for test in tests
        if not re.search(
            rf"^def {test.partition('::')[2]}\(",
            (ROOT / test.partition("::")[0]).read_text(),
            re.MULTILINE,
        )
    ]
    assert not missing
    assert all(FAULTS.values())


def test_no_test_of_this_folder_or_of_the_server_in_front_is_left_out():
    """What is tested here is in the table."""
    named = {test for tests in FAULTS.values() for test in tests}
    files = [ROOT / f"tests/faults/test_{name}.py" for name in ("logs", "machine")]
    files += ROOT.glob("tests/annex/meks/faults/test_*.py")
    for file in files:
        found = re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE)
        assert {f"{file.relative_to(ROOT)}::{name}" for name in found} <= named


def test_every_command_that_waits_is_interrupted():
    """Ctrl-C is the fault that everybody makes."""
    text = " ".join(name for name in FAULTS if name.startswith("Ctrl-C"))
    assert [name for name in _LONG if name not in text] == []
