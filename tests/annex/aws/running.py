"""A local AWS of a test's own, and failures that it is told to play."""

import sys
from contextlib import contextmanager

from megatron_eks.localcloud.aws import keys, server
from megatron_eks.localcloud.aws.server import FAILURES_PATH
from megatron_eks.localcloud.kubernetes.processes import Processes, free_port


@contextmanager
def local_aws(folder):
    """Run a local AWS; its log lies in the folder."""
    processes = Processes(folder)
    try:
        running = server.new(free_port())
        server.start(processes, sys.executable, running, folder / keys.FILE)
        server.wait(processes, running.port)
        yield running
    finally:
        processes.stop()


def fail_next(aws, resource, message, action="CREATE"):
    """Let CloudFormation fail once at a resource, given by type or beginning of its name."""
    aws.tell(FAILURES_PATH, {"resource": resource, "message": message, "action": action})
