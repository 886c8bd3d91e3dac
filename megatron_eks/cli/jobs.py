"""The panel Jobs: start jobs, watch them, and find out what is wrong with them."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import CycloptsError, Parameter
from cyclopts.validators import Number

from megatron_eks.cli import args
from megatron_eks.cli.app import JOBS, command
from megatron_eks.ops.opening import console_here, on_cluster, today


@command(JOBS)
def submit(
    job: Annotated[str, args.JOBS],
    /,
    *,
    nodes: Annotated[str | None, Parameter(metavar="N")] = None,
    image: Annotated[str | None, Parameter(metavar="IMAGE")] = None,
    change: Annotated[list[str] | None, Parameter("--set", metavar="PATH=VALUE")] = None,
    follow: bool = False,
    wait: bool = False,
    preview: args.Preview = False,
    timeout: args.Timeout = 14 * 24 * 60,
    reach: args.Reach = args.HERE,
) -> int:
    """Start a job; the same command again finds it and starts no second one.

    meks submit megatron-cpt-techpulse --follow
    meks submit jobs/fsdp-llama-2-7b.yaml --nodes 1 --set training.max_steps=20
    meks submit megatron-cpt-techpulse --wait

    :param job: a job file, or the name of a job in jobs/
    :param nodes: instead of the file's `nodes`
    :param image: instead of the file's `image`
    :param change: any other value of the file, as training.train_iters=20; may be repeated
    :param follow: print its logs until it ends
    :param wait: wait until it ends
    """
    from megatron_eks.ops.jobs.rendering import Wish, parse
    from megatron_eks.ops.jobs.submit import Options, run

    chosen = [f"{key}={value}" for key, value in (("nodes", nodes), ("image", image)) if value]
    wish = Wish(reach.cluster, job, parse([*(change or ()), *chosen]), today())
    options = Options(
        follow=follow,
        wait=wait,
        previews=preview,
        wait_seconds=timeout * 60,
        command=("meks", *sys.argv[1:]),
    )
    return on_cluster(reach, partial(run, wish, options), makes=True, job=job)


@command(JOBS, "[JOB]")
def status(
    job: args.SomeJob = None,
    /,
    *,
    reach: args.Reach = args.HERE,
    output: args.Output = "table",
) -> int:
    """Show the status of a job or of the cluster, and what it waits for.

    meks status                             pools, jobs, what is not ready
    meks status megatron-cpt-techpulse      each rank, speed beside the plan
    meks status -o json | jq .jobs

    :param job: default: the cluster
    """
    from megatron_eks.ops.jobs.records import see

    return on_cluster(reach, partial(see, job, output=output), job=job)


@command(JOBS)
def queue(*, reach: args.Reach = args.HERE, output: args.Output = "table") -> int:
    """Show the jobs that wait in queues: why, since when, and which comes next.

    meks queue
    meks queue --team nlp
    meks queue -o json | jq '.waiting[0].why'
    """
    from megatron_eks.ops.jobs.queue import run

    return on_cluster(reach, partial(run, output=output, team=reach.team))


@command(JOBS, "[JOB]")
def logs(
    job: args.SomeJob = None,
    /,
    *,
    rank: args.N = None,
    follow: Annotated[bool, Parameter(alias="-f", group=args.ONE_OF)] = False,
    tail: args.N = None,
    since: Annotated[int | None, args.read_by(args.span, metavar="TIME")] = None,
    previous: Annotated[bool, Parameter(group=args.ONE_OF)] = False,
    explain: bool = False,
    files: Annotated[
        list[Path] | None, Parameter("--file", metavar="PATH", allow_leading_hyphen=True)
    ] = None,
    reach: args.Reach = args.HERE,
    output: args.Output = "table",
) -> int:
    """Print the output of a job's ranks, each line with its rank.

    meks logs megatron-cpt-techpulse --follow
    meks logs megatron-cpt-techpulse --rank 1 --tail 50
    meks logs megatron-cpt-techpulse --rank 1 --previous
    meks logs megatron-cpt-techpulse --follow | grep checkpoint
    meks logs megatron-cpt-techpulse --explain
    meks logs --explain saved.log

    :param job: of jobs/
    :param rank: only of this rank
    :param follow: keep printing until the job ends; Ctrl-C does not stop the job
    :param tail: the last N lines of each rank
    :param since: such as 90s, 10m, 2h or 1d
    :param previous: of the containers before the last restart
    :param explain: say what ended the job and what to do, instead of the lines
    :param files: explain a log saved anywhere, - for standard input; may be repeated
    """
    if explain and follow:
        raise CycloptsError(msg="--explain reads what is there: leave out --follow")
    if explain and job and {"/", "."} & {*job}:
        # No job has such a name: a log was meant.
        files, job = [*(files or ()), Path(job)], None
    if files and (job or not explain):
        raise CycloptsError(msg="--file goes with --explain, and without a JOB")
    if files:
        from megatron_eks.ops.diagnosis import of_files

        return of_files(files, output, console_here())
    if job is None:
        raise CycloptsError(msg="name a JOB, or a log with --explain --file PATH")
    if output != "table" and not explain:
        raise CycloptsError(msg="-o goes with --explain: logs are printed as they are")
    from megatron_eks.ops.jobs.logs import Options
    from megatron_eks.ops.jobs.records import logs_of

    options = Options(rank, follow, tail, since, previous)
    show = partial(logs_of, job, options, output=output, explains=explain)
    return on_cluster(reach, show, job=job)


@command(JOBS, "JOB [-- COMMAND...]")
def shell(
    job: args.Job,
    /,
    *,
    rank: Annotated[int | None, args.read_by(args.count, metavar="N", group=args.ONE_OF)] = None,
    all_ranks: Annotated[bool, Parameter(group=args.ONE_OF)] = False,
    reach: args.Reach = args.HERE,
    inner: Annotated[tuple[str, ...], Parameter(parse=False)] = (),
) -> int:
    """Open a shell in a rank's container, or run one command there.

    The exit code is the command's; with --all-ranks, 1 if it failed in any rank.

    meks shell megatron-cpt-techpulse
    meks shell megatron-cpt-techpulse --rank 1 -- nvidia-smi
    meks shell megatron-cpt-techpulse --all-ranks -- df -h /shared
    meks shell megatron-cpt-techpulse -- cat /shared/notes.txt > notes.txt

    :param rank: where (default: 0)
    :param all_ranks: run the command in all ranks, each line with its rank
    """
    from megatron_eks.ops.jobs.shell import run

    if all_ranks and not inner:
        found = "--all-ranks needs a command: meks shell JOB --all-ranks -- COMMAND"
        raise CycloptsError(msg=found)
    act = partial(run, rank=rank or 0, all_ranks=all_ranks, command=inner)
    return on_cluster(reach, lambda on: act(on.client, on.plan, job, on.console), job=job)


@command(JOBS, "JOB [-- COMMAND...]")
def dev(
    job: args.Job,
    /,
    *,
    gpus: args.N = None,
    hours: Annotated[float, args.POSITIVE, Parameter(metavar="N", show_default=True)] = 8,
    idle_minutes: Annotated[float, args.POSITIVE, Parameter(metavar="N", show_default=True)] = 30,
    port: Annotated[int | None, Parameter(validator=Number(gte=1, lte=65535), metavar="N")] = None,
    preview: args.Preview = False,
    yes: args.Yes = False,
    reach: args.Reach = args.HERE,
    inner: Annotated[tuple[str, ...], Parameter(parse=False)] = (),
) -> int:
    """Work in a pod with a job's image, code, mounts and variables, and one GPU.

    It shows the price and asks first. Run the same command again to reconnect.

    meks dev megatron-cpt-techpulse
    meks dev megatron-cpt-techpulse --gpus 0 --hours 2
    meks dev megatron-cpt-techpulse --port 8888     Jupyter, started in the shell
    meks dev megatron-cpt-techpulse -- nvidia-smi

    :param gpus: GPUs of one node; 0: on a system node (default: 1)
    :param hours: the pod ends after them, whatever runs in it
    :param idle_minutes: it ends earlier after as many without a connection or a busy GPU
    :param port: forward this local port to the same port of the pod, instead of a shell
    """
    from megatron_eks.ops.jobs.dev import run

    limits = (hours, idle_minutes)
    act = partial(run, job, gpus=gpus, limits=limits, port=port, command=inner, previews=preview)
    return on_cluster(reach, act, yes=yes, makes=True, job=job)


@command(JOBS)
def cancel(
    job: args.Job,
    /,
    *,
    yes: args.Yes = False,
    timeout: args.Timeout = 15,
    reach: args.Reach = args.HERE,
) -> int:
    """End a job, and wait until its pods are gone.

    meks cancel megatron-cpt-techpulse
    """
    from megatron_eks.ops.jobs.cancel import run

    return on_cluster(
        reach, lambda on: run(on.client, on.plan, job, timeout * 60, on.console), yes=yes, job=job
    )
