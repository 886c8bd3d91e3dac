"""What a local cluster tells other processes: where it is, whether it runs, and how it fell."""

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

STATE_FILE = "state.json"
LOG_FILE = "log"
SHARED = "shared"
"""What lies behind claims, in the folder of a cluster: it outlives the cluster."""

LOCK_FILE = "lock"
"""The file whose lock is a cluster's sign of life."""

_FALL_FILE = "fall"


@dataclass(frozen=True)
class State:
    """What a running cluster tells."""

    pid: int
    """Of the process whose end is the end of the cluster."""
    kubeconfig: str
    aws_endpoint_url: str
    aws_credentials_file: str
    """Of the AWS's administrator."""
    pids: dict[str, int]
    ports: dict[str, int]
    environment: dict[str, str]
    """What a shell needs to reach it."""

    def publish(self, folder: Path) -> None:
        """Write it at once, so that whoever waits for the file finds it complete."""
        partial = folder / f"{STATE_FILE}.partial"
        # The environment has keys in it.
        partial.touch(mode=0o600)
        partial.write_text(json.dumps(asdict(self)))
        partial.replace(folder / STATE_FILE)


def read_state(folder: Path) -> State:
    """Return the state of the cluster that runs in a folder, or has fallen there."""
    return State(**json.loads((folder / STATE_FILE).read_text()))


def is_running(folder: Path) -> bool:
    """Say whether a process holds the folder's lock; a process id alone may be another's by now."""
    try:
        with (folder / LOCK_FILE).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def note_fall(folder: Path, error: Exception) -> None:
    """Leave a note of why a cluster ends; whoever misses it reads the note."""
    first, *others = str(error).splitlines() or [repr(error)]
    log = others[-1].strip("()") if others else folder / LOG_FILE
    (folder / _FALL_FILE).write_text(f"{first}; log: {log}")


def fall(folder: Path) -> str | None:
    """Return why the last cluster of a folder fell; None if it runs, or somebody stopped it."""
    if is_running(folder) or not (folder / STATE_FILE).exists():
        return None
    note = folder / _FALL_FILE
    # Killed, the process behind it has no time for a note.
    unknown = f"its supervisor ended; log: {folder / LOG_FILE}"
    return f"the local cluster fell: {note.read_text() if note.exists() else unknown}"


def shared_files(folder: Path) -> str:
    """Say where the files of /shared lie and how much they take; nothing if there are none."""
    shared, found, size = folder / SHARED, 0, 0
    for place, _, names in os.walk(shared):
        for name in names:
            found += 1
            size += Path(place, name).lstat().st_size
    if not found:
        return ""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(max(size.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{found} file{'s' * (found != 1)}, {size / 1024**power:.4g} {units[power]}, in {shared}"
