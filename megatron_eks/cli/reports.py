"""The panel Jobs, where a run is looked back at."""

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from megatron_eks.cli import args
from megatron_eks.cli.app import JOBS, command
from megatron_eks.ops.opening import on_cluster


@command(JOBS)
def report(
    job: args.Job,
    /,
    *,
    output: Annotated[Path | None, Parameter(("--output", "-o"), metavar="FILE")] = None,
    reach: args.Reach = args.HERE,
) -> int:
    """Write a page about a run: what it did, why it ended, and what it cost.

    It is one file that needs no network. The job may run, have ended, or be gone.

    meks report megatron-cpt-techpulse
    meks report megatron-cpt-techpulse -o run-12.html

    :param job: of jobs/
    :param output: where to write it (default: reports/JOB.html beside the cluster file)
    """
    from megatron_eks.ops.jobs.report_page import run

    return on_cluster(reach, partial(run, reach.cluster, job, output))
