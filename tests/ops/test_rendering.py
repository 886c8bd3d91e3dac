"""What `app.py` and `python -m charts` end with."""

import sys
from pathlib import Path

import pytest

from megatron_eks import rendering

CLUSTER = Path(__file__).parents[2] / "examples" / "g5" / "cluster.yaml"


def interrupted(*_):
    """Stand for Ctrl-C while files are written."""
    raise KeyboardInterrupt


def full(*_):
    """Stand for a disk that takes no more."""
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("render", "text", "code"),
    [
        (lambda *_: (), "", 0),
        (lambda *_: (), "nmae: x\n", 2),
        (full, "", 1),
        (interrupted, "", 130),
    ],
    ids=["written", "mistake", "full", "interrupted"],
)
def test_exit_codes(tmp_path, monkeypatch, capsys, render, text, code):  # noqa: PLR0917 -- its columns
    """As docs/commands.md has them."""
    monkeypatch.setattr(sys, "argv", ["app.py"])
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER.read_text() + text)
    render.__module__ = rendering.__name__
    assert rendering.run(render, "app.py", ("CDK_OUTDIR", "out"), str(file)) == code
    assert ("No space left" in capsys.readouterr().err) is (code == 1)
