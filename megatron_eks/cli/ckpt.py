"""`meks ckpt`, of the panel Data: checkpoints on /shared, in S3, and here."""

from functools import partial
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from megatron_eks.cli import args
from megatron_eks.cli.app import DATA, command, group

ckpt = group(
    DATA,
    "ckpt",
    """List, verify, copy and remove checkpoints on /shared, in S3 and on this machine.

    meks ckpt ls megatron-cpt-techpulse
    meks ckpt verify s3://BUCKET/runs/techpulse
    meks ckpt pull megatron-cpt-techpulse --local ./checkpoints
    meks ckpt push megatron-cpt-techpulse s3://BUCKET/runs/techpulse
    meks ckpt prune megatron-cpt-techpulse --keep-last 2 --dry-run
    """,
)


def _name(text: str) -> str:
    """Return the directory's name for an iteration, given as a number or by that name."""
    number = text.removeprefix("iter_")
    if not number.isdecimal():
        raise ValueError(f"{text!r} is not an iteration such as 500")
    return f"iter_{int(number):07d}"


What = Annotated[
    str,
    args.JOBS,
    Parameter(
        "JOB|DIR|S3_URI", help="a job of jobs/, a directory (with a /), or s3://BUCKET/PREFIX"
    ),
]
Iteration = Annotated[str | None, args.read_by(_name, metavar="N")]
Dir = Annotated[str | None, Parameter(metavar="DIR")]


@command(ckpt, name="ls")
def list_checkpoints(
    what: What, /, *, reach: args.Reach = args.HERE, output: args.Output = "table"
) -> int:
    """List checkpoints: which are whole, and which one a restart would take.

    meks ckpt ls megatron-cpt-techpulse     on /shared and in S3
    meks ckpt ls /shared/checkpoints/techpulse-cpt
    meks ckpt ls s3://BUCKET/runs/techpulse -o json   needs no cluster
    meks ckpt ls ./checkpoints                        nor does this
    """
    from megatron_eks.ops.data.checkpoints import ls
    from megatron_eks.ops.data.target import act

    return act(reach, what, partial(ls, output=output))


@command(ckpt, name="verify")
def verify_checkpoints(
    what: What,
    /,
    *,
    iteration: Iteration = None,
    reach: args.Reach = args.HERE,
    output: args.Output = "table",
) -> int:
    """Compare checkpoints with their checksums; exit with 4 if one is damaged.

    meks ckpt verify megatron-cpt-techpulse   /shared and S3, all of them
    meks ckpt verify s3://BUCKET/runs/techpulse --iteration 500

    :param iteration: only this one
    """
    from megatron_eks.ops.data.checkpoints import verify
    from megatron_eks.ops.data.target import act

    return act(reach, what, partial(verify, name=iteration, output=output))


@command(ckpt, "JOB|DIR|S3_URI [DIR]")
def pull(
    what: Annotated[str, args.JOBS, Parameter("JOB|DIR|S3_URI")],
    to: Annotated[str | None, Parameter("DIR")] = None,
    /,
    *,
    local: Dir = None,
    iteration: Iteration = None,
    reach: args.Reach = args.HERE,
) -> int:
    """Fetch a checkpoint from S3 to /shared, or from S3 or /shared to this machine.

    meks ckpt pull megatron-cpt-techpulse          to the job's directory
    meks ckpt pull s3://BUCKET/runs/a /shared/checkpoints/a --iteration 500
    meks ckpt pull s3://BUCKET/runs/a --local .    needs no cluster
    meks ckpt pull /shared/checkpoints/a --local . from the file system itself

    :param what: a job, a URI, or a directory below /shared (the source with --local)
    :param to: below /shared; default: the job's
    :param local: a directory on this machine instead
    :param iteration: this one instead of the newest
    """
    from megatron_eks.ops.data import checkpoints
    from megatron_eks.ops.data.target import act, to_pull

    if to and local:
        raise CycloptsError(msg="name a DIR below /shared, or one here with --local, not both")
    return act(
        reach,
        what,
        partial(checkpoints.pull, name=iteration, local=local),
        lambda found, mount: to_pull(found, to, local, mount),
    )


@command(ckpt, "JOB|DIR [S3_URI]", name="push")
def push_checkpoints(
    what: Annotated[str, args.JOBS, Parameter("JOB|DIR")],
    uri: Annotated[str | None, Parameter("S3_URI")] = None,
    /,
    *,
    every: Annotated[bool, Parameter("--all", group=args.ONE_OF)] = False,
    iteration: Annotated[Iteration, Parameter(group=args.ONE_OF)] = None,
    reach: args.Reach = args.HERE,
) -> int:
    """Upload whole checkpoints to S3, skipping what is already there.

    meks ckpt push megatron-cpt-techpulse          the newest, to its s3_uri
    meks ckpt push /shared/checkpoints/a s3://BUCKET/runs/a --all
    meks ckpt push ./checkpoints s3://BUCKET/runs/a    needs no cluster

    :param what: a job, or a directory (with a /)
    :param uri: default: the job's s3_uri
    :param every: every whole one, not only the newest
    :param iteration: this one
    """
    from megatron_eks.ops.data import checkpoints
    from megatron_eks.ops.data.target import act, to_push

    chosen = ["--all"] if every else [f"--name={iteration}"] if iteration else []
    return act(
        reach, what, partial(checkpoints.push, which=chosen), lambda found, _: to_push(found, uri)
    )


@command(ckpt)
def prune(
    what: What,
    /,
    *,
    keep_last: Annotated[int, args.read_by(args.one_or_more, metavar="N")],
    dry_run: bool = False,
    yes: args.Yes = False,
    reach: args.Reach = args.HERE,
) -> int:
    """Remove old checkpoints, never what a restart needs; shows them and asks.

    meks ckpt prune megatron-cpt-techpulse --keep-last 2 --dry-run
    meks ckpt prune s3://BUCKET/runs/techpulse --keep-last 1

    :param keep_last: whole ones to keep
    :param dry_run: only show what would be removed
    """
    from megatron_eks.ops.data import checkpoints
    from megatron_eks.ops.data.target import act

    do = partial(checkpoints.prune, keep_last=keep_last, dry_run=dry_run)
    return act(reach, what, do, yes=yes)
