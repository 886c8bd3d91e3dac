"""The line that says how far a program is moves the cursor; the names beside it do not."""

import os
import pty
import subprocess
import sys

from tests import hostile
from tests.programs.run_program import ROOT

_PROGRAM = """
import sys
from megatron_eks.programs import progress, program
def main(argv, report):
    bar = progress.TransferProgress(2_000_000, 0)
    bar._next = 0
    bar.add(1_000_000, 0, 0)
    bar.say(argv[0])
    bar.close()
sys.exit(program.run("x", main, sys.argv[1:]))
"""


def test_only_its_own_line_is_redrawn():
    """On a terminal, where it begins again at the left edge and clears what is left."""
    control, terminal = pty.openpty()
    name = f"{hostile.ALL}\n".replace("\0", "")
    with subprocess.Popen(  # noqa: S603 -- our own program
        [sys.executable, "-c", _PROGRAM, name],
        env={"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
        stdout=subprocess.DEVNULL,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while data := os.read(control, 65536):
                shown += data
        except OSError:
            # The other side is closed.
            os.close(control)
    text = shown.decode()
    assert process.returncode == 0
    assert text.startswith("1 of 2 MB, ")
    assert " left\x1b[K\r" in text
    assert text.count("\x1b[K\r\n") == 2
    assert hostile.acting(text.replace("\x1b[K\r\n", "\n").replace("\x1b[K\r", "\n")) == []
