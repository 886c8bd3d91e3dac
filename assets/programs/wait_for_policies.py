"""Holds a pod back until network policies are in force for it.

wait_for_policies.py [--seconds N]

The VPC CNI lets a new pod reach everything, and be reached, until it has attached the policies that
select the pod, a second or two later; connections from before may then be cut. No policy lets a pod
of a job reach the metadata service, which answers on every EC2 instance: while it takes
connections, no policy holds. After N seconds (default 10) the pod goes on, with a warning.

Exit codes: 0 done, also with the warning, 2 the command line is wrong, 130 interrupted.
"""

import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import program
from findings import Report, warning

# EC2 User Guide, "Access instance metadata for an EC2 instance".
METADATA = ("169.254.169.254", 80)
_CONNECT_SECONDS = 1.0
_PAUSE_SECONDS = 0.2
# What is written there stays with the pod's status (Kubernetes, "Determine the Reason for Pod
# Failure").
_MESSAGE = Path("/dev/termination-log")


def main(argv: Sequence[str], report: Report) -> None:
    """Wait until a connection that policies deny is denied."""
    parser = program.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="at most so long")
    seconds = parser.parse_args(argv).seconds
    begin = time.monotonic()
    while _is_taken():
        if time.monotonic() - begin >= seconds:
            found = warning(
                "network policies",
                f"none is in force for this pod after {seconds:g} s",
                "see that the cluster's network plugin has them enabled (vpc-cni: "
                "enableNetworkPolicy); until then jobs reach each other and the node's credentials",
            )
            report.findings.append(found)
            if _MESSAGE.exists():
                _MESSAGE.write_text(f"{found}\n")
            break
        time.sleep(_PAUSE_SECONDS)
    report.facts.update(waited_seconds=round(time.monotonic() - begin, 1))


def _is_taken() -> bool:
    try:
        socket.create_connection(METADATA, _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(program.run("wait_for_policies", main, sys.argv[1:]))
