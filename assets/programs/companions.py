"""What copies checkpoints to S3 beside a training: started by every trainer, awaited by some."""

import os
import subprocess
import sys
from pathlib import Path

_SYNC = Path(__file__).resolve().parent / "checkpoint_sync.py"


class Copies:
    """checkpoint_sync.py in a process of its own; whatever happens to it costs no training.

    Raises OSError if it cannot be started.
    """

    def __init__(self, save: Path, uri: str, keep_last: int) -> None:
        self._push = [
            *(sys.executable, str(_SYNC), "push", str(save), uri),
            f"--keep-last={keep_last}",
        ]
        self._watcher = subprocess.Popen(  # noqa: S603 -- this directory's own program
            [*self._push, "--watch", f"--parent={os.getpid()}"],
            stdin=subprocess.DEVNULL,
            # Its JSON line is none of the training's.
            stdout=sys.stderr.fileno(),
            # It has to outlive the training, whose last checkpoint is the one that matters.
            start_new_session=True,
        )

    def finish(self) -> None:
        """Wait until the last checkpoint is sent: the container ends with the training."""
        self._watcher.terminate()
        if self._watcher.wait() != 0:
            # It ends with 0 once it watches; the training was over before that.
            subprocess.run(  # noqa: S603 -- as above
                self._push, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), check=False
            )
