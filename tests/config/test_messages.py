"""How findings look: one line for programs, wrapped and coloured for people."""

import os
from pathlib import Path

import pytest

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.messages import messages

FINDING = Finding(
    Code.DOES_NOT_FIT, ("parallelism",), "38.3 GiB a GPU, and it has 36.4", "use tensor: 4"
).at("jobs/wide.yaml", 10)
HEAD = " MEKS-0312 jobs/wide.yaml:10\n  parallelism: 38.3 GiB a GPU, and it\n  has 36.4\n"
WRAPPED = f"{HEAD}    use tensor: 4\n"


@pytest.mark.parametrize(
    ("variable", "level"), [("COLUMNS", "\x1b[1;31merror\x1b[0m"), ("NO_COLOR", "error")]
)
def test_a_terminal_gets_short_lines(monkeypatch, variable, level):
    """The remedy is indented, and NO_COLOR is honoured."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, "40")
    ours, theirs = os.openpty()
    with os.fdopen(ours), os.fdopen(theirs, "w") as terminal:
        assert messages([FINDING], terminal) == f"{level}{WRAPPED}"


def test_a_file_gets_a_line_each(tmp_path):
    """As the error contract has it."""
    with Path(tmp_path / "findings").open("w", encoding="utf-8") as file:
        assert messages([FINDING, FINDING], file) == f"{FINDING}\n" * 2
