"""The panel Jobs, where a run is looked back at."""

from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import CycloptsError, Parameter
from cyclopts.validators import Number

from megatron_eks.cli import args
from megatron_eks.cli.app import JOBS, command
from megatron_eks.ops.opening import on_cluster
from megatron_eks.programs.profile_request import Wish
from megatron_eks.programs.profile_request import steps as read_steps


@command(JOBS, "[JOB]")
def report(
    job: args.SomeJob = None,
    /,
    *,
    days: Annotated[
        int, Parameter(validator=Number(gte=1, lte=42), metavar="N", show_default=True)
    ] = 30,
    output: Annotated[Path | None, Parameter(("--output", "-o"), metavar="FILE")] = None,
    reach: args.Reach = args.HERE,
) -> int:
    """Write a page about a run, or about a month of the cluster, and what it cost.

    It is one file that needs no network. The job may run, have ended, or be gone. Without a job
    it is about the cluster; --cluster FILE says which, as in every command.

    meks report megatron-cpt-techpulse     what it did, and why it ended
    meks report                            all jobs, restarts by cause, idle nodes

    :param job: of jobs/; without one it is the cluster's report
    :param days: of the cluster's report
    :param output: where to write it (default: reports/ beside the cluster file)
    """
    if job is None:
        from megatron_eks.ops.cluster import month

        return on_cluster(reach, partial(month.run, days, output))
    from megatron_eks.ops.jobs.report_page import run

    return on_cluster(reach, partial(run, job, output))


@command(JOBS)
def profile(
    job: Annotated[str, args.JOBS],
    /,
    *,
    steps: Annotated[tuple[int, int] | None, args.read_by(read_steps, metavar="FIRST:LAST")] = None,
    rank: Annotated[list[int] | None, Parameter(validator=Number(gte=0), metavar="N")] = None,
    nsys: bool = False,
    output: Annotated[Path | None, Parameter(("--output", "-o"), metavar="FILE")] = None,
    reach: args.Reach = args.HERE,
) -> int:
    """Look into some steps of a run: its longest kernels, its communication, its idle time.

    With --steps it asks; the run goes on, and traces them when it gets there, or after its next
    start. Without, it fetches the newest traces and writes a page.

    meks profile megatron-cpt-techpulse --steps 500:502
    meks profile megatron-cpt-techpulse

    :param job: of jobs/, of kind megatron, fsdp or ddp
    :param steps: at most 10, from step 3 on
    :param rank: of this rank; may be repeated (default: the first and the last)
    :param nsys: by Nsight Systems, in an image that has it, from the job's next start on
    :param output: where to write it (default: reports/JOB-profile.html beside the cluster file)
    """
    from megatron_eks.ops.jobs.profile import run

    if (rank or nsys) and not steps:
        raise CycloptsError(msg="--rank and --nsys go with --steps FIRST:LAST")
    wish = Wish(*steps, tuple(rank or ()), nsys) if steps else None
    return on_cluster(reach, partial(run, job, wish, output))


@command(JOBS)
def tensorboard(
    job: args.Job,
    /,
    *,
    directory: Annotated[str | None, Parameter("--dir", metavar="DIR")] = None,
    port: Annotated[
        int, Parameter(validator=Number(gte=1, lte=65535), metavar="N", show_default=True)
    ] = 6006,
    reach: args.Reach = args.HERE,
) -> int:
    """Open TensorBoard on a job's event files, through a port of this machine.

    It runs in a pod on a system node, which goes with Ctrl-C.

    meks tensorboard megatron-cpt-techpulse
    meks tensorboard trainer --dir /shared/runs/trainer --port 6007

    :param directory: on the file system (default: where kinds megatron and megatron_bridge write)
    :param port: of this machine
    """
    from megatron_eks.ops.jobs.tensorboard import run

    return on_cluster(reach, partial(run, job, folder=directory, port=port))
