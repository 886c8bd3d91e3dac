"""Behind `meks local up`: `python -m ...local.kubernetes FOLDER CLUSTER NODES [empty [PORT]]`.

The port is that of AWS; without one, any that is free.
"""

import fcntl
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from annex.localcloud.kubernetes import build, cluster, state
from annex.localcloud.kubernetes.processes import ProcessError
from megatron_eks.kubernetes.client import ApiError


def main(
    folder: str, cluster_file: str, process_nodes: str, empty: str = "", port: str = "0"
) -> int:
    """Run a cluster, holding the folder's lock as a sign of life."""
    # All of it talks on loopback, whatever proxy somebody's shell names for the rest.
    os.environ |= dict.fromkeys(("NO_PROXY", "no_proxy"), "*")
    with state.lock_file(Path(folder)).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("another cluster of this user is running or starting\n")
            return 1
        try:
            file, nodes = Path(cluster_file), int(process_nodes)
            programs = build.programs(os.environ, _report, simulator=not nodes)
            today = datetime.now(tz=UTC).date()
            cluster.serve(
                programs, file, Path(folder), today, nodes, empty=bool(empty), aws_port=int(port)
            )
        except (ApiError, ProcessError, TimeoutError, build.BuildError) as error:
            sys.stderr.write(f"{error}\n")
            state.note_fall(Path(folder), error)
            return 1
    return 0


def _report(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
