"""Runs a local cluster: `python -m megatron_eks.localcloud.kubernetes SETTINGS`."""

import fcntl
import os
import sys
from pathlib import Path

from megatron_eks.kubernetes.client import ApiError
from megatron_eks.localcloud.kubernetes import build, cluster, state
from megatron_eks.localcloud.kubernetes.processes import ProcessError
from megatron_eks.localcloud.kubernetes.settings import Settings


def main(file: str) -> int:
    """Run a cluster, holding its folder's lock as a sign of life."""
    # All of it talks on loopback, whatever proxy somebody's shell names for the rest.
    os.environ |= dict.fromkeys(("NO_PROXY", "no_proxy"), "*")
    settings = Settings.read(Path(file))
    with (settings.folder / state.LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("another cluster of this user is running or starting\n")
            return 1
        try:
            build.programs(os.environ, _report, without=settings.without)
            cluster.serve(build.places(os.environ), settings)
        except (ApiError, ProcessError, TimeoutError, build.BuildError) as error:
            sys.stderr.write(f"{error}\n")
            state.note_fall(settings.folder, error)
            return 1
    return 0


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
