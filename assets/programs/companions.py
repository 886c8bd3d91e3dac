"""What copies checkpoints to S3 beside a training: started by every trainer, awaited by some."""

import os
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def start_copies(save: Path, uri: str, keep_last: int) -> "subprocess.Popen[bytes]":
    """Start checkpoint_sync.py, which ends some time after this process; never at its cost."""
    return subprocess.Popen(  # noqa: S603 -- this directory's own program
        [
            sys.executable,
            str(_HERE / "checkpoint_sync.py"),
            *("push", str(save), uri, "--watch"),
            f"--keep-last={keep_last}",
            f"--parent={os.getpid()}",
        ],
        stdin=subprocess.DEVNULL,
        # Its JSON line is none of the training's.
        stdout=sys.stderr.fileno(),
        # It has to outlive the training, whose last checkpoint is the one that matters.
        start_new_session=True,
    )


def finish_copies(copies: "subprocess.Popen[bytes]") -> None:
    """Wait until the last checkpoint is sent: the container ends with the training."""
    copies.terminate()
    copies.wait()
