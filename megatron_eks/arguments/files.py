"""Arguments of the commands about files: checkpoints, and the data that jobs read."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from megatron_eks.arguments.reach import console_here, on_cluster, reach
from megatron_eks.arguments.shared import Commands, command, one_or_more, output, runs, today, yes
from megatron_eks.config.cluster import MOUNT_PATH
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.ckpt import listing, target, transfers
from megatron_eks.ops.ckpt.target import Target
from megatron_eks.ops.endings import INTERRUPTED
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.programs import Here, Place, environment_for
from megatron_eks.project import DEFAULT_CLUSTER, Project, load_project

_WHAT = "a job of jobs/, a directory (with a /), or s3://BUCKET/PREFIX"

Act = Callable[[Place, Console], int]


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    parser = command(
        commands,
        "ckpt",
        "List, compare, copy and remove checkpoints, on /shared, in S3, and here.",
        "  meks ckpt ls megatron-cpt-techpulse\n"
        "  meks ckpt verify s3://BUCKET/runs/techpulse\n"
        "  meks ckpt pull megatron-cpt-techpulse --local ./checkpoints\n"
        "  meks ckpt push megatron-cpt-techpulse s3://BUCKET/runs/techpulse\n"
        "  meks ckpt prune megatron-cpt-techpulse --keep-last 2 --dry-run\n",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _ls(actions)
    _verify(actions)
    _pull(actions)
    _push(actions)
    _prune(actions)


def _ls(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "ls",
        "Say which checkpoints are whole, which are not, and what a restart would take.",
        "  meks ckpt ls megatron-cpt-techpulse     on /shared and in S3\n"
        "  meks ckpt ls /shared/checkpoints/techpulse-cpt\n"
        "  meks ckpt ls s3://BUCKET/runs/techpulse -o json   needs no cluster\n"
        "  meks ckpt ls ./checkpoints                        nor does this\n",
    )
    parser.add_argument("what", metavar="JOB|DIR|S3_URI", help=_WHAT)
    reach(parser)
    output(parser, "a table, or the same as data")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        return _act(
            given,
            lambda found, place, console: listing.ls(found, place, given.output, console),
            "nothing was changed",
        )


def _verify(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "verify",
        "Compare checkpoints with their checksums; ends with 4 if one is damaged.",
        "  meks ckpt verify megatron-cpt-techpulse   /shared and S3, all of them\n"
        "  meks ckpt verify s3://BUCKET/runs/techpulse --iteration 500\n",
    )
    parser.add_argument("what", metavar="JOB|DIR|S3_URI", help=_WHAT)
    _iteration(parser, "this one alone")
    reach(parser)
    output(parser, "a table, or the same as data")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        def act(found: Target, place: Place, console: Console) -> int:
            return listing.verify(found, place, given.iteration, given.output, console)

        return _act(given, act, "nothing was changed")


def _pull(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "pull",
        "Fetch a checkpoint from S3 to /shared, or to a directory of this machine.",
        "  meks ckpt pull megatron-cpt-techpulse          to the job's directory\n"
        "  meks ckpt pull s3://BUCKET/runs/a /shared/checkpoints/a --iteration 500\n"
        "  meks ckpt pull s3://BUCKET/runs/a --local .    needs no cluster\n",
    )
    parser.add_argument("what", metavar="JOB|S3_URI", help="a job with checkpoint.s3_uri, or a URI")
    parser.add_argument("to", nargs="?", metavar="DIR", help="below /shared; default: the job's")
    parser.add_argument("--local", metavar="DIR", help="a directory of this machine instead")
    _iteration(parser, "this one, and not the newest")
    reach(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        if given.to and given.local:
            parser.error("name a DIR below /shared, or one here with --local, not both")

        def act(found: Target, place: Place, console: Console) -> int:
            return transfers.pull(found, place, given.iteration, console)

        return _act(given, act, "what was fetched stays, and the same command goes on")


def _push(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "push",
        "Send whole checkpoints to S3; what is there already is not sent again.",
        "  meks ckpt push megatron-cpt-techpulse          the newest, to its s3_uri\n"
        "  meks ckpt push /shared/checkpoints/a s3://BUCKET/runs/a --all\n"
        "  meks ckpt push ./checkpoints s3://BUCKET/runs/a    needs no cluster\n",
    )
    parser.add_argument("what", metavar="JOB|DIR", help="a job, or a directory (with a /)")
    parser.add_argument("uri", nargs="?", metavar="S3_URI", help="default: the job's s3_uri")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="every whole one, not the newest alone")
    _iteration(which, "this one")
    reach(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        chosen = ["--all"] if given.all else []
        chosen += [f"--name={given.iteration}"] if given.iteration else []

        def act(found: Target, place: Place, console: Console) -> int:
            return transfers.push(found, place, chosen, console)

        return _act(given, act, "what was sent stays, and the same command goes on")


def _prune(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "prune",
        "Remove old checkpoints, never what a restart needs; shows them and asks.",
        "  meks ckpt prune megatron-cpt-techpulse --keep-last 2 --dry-run\n"
        "  meks ckpt prune s3://BUCKET/runs/techpulse --keep-last 1\n",
    )
    parser.add_argument("what", metavar="JOB|DIR|S3_URI", help=_WHAT)
    parser.add_argument(
        "--keep-last", type=one_or_more, required=True, metavar="N", help="whole ones to keep"
    )
    parser.add_argument("--dry-run", action="store_true", help="show it, and remove nothing")
    yes(parser)
    reach(parser)
    output(parser, "a table, or the same as data")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        def act(found: Target, place: Place, console: Console) -> int:
            words = found, place, given.keep_last, given.output, console
            return transfers.prune(*words, dry_run=given.dry_run)

        return _act(given, act, "each is whole or gone, and the same command does the rest")


def _act(
    given: argparse.Namespace, act: Callable[[Target, Place, Console], int], again: str
) -> int:
    """Find out what was named and act where that is: in the cluster, or on this machine."""
    # What is in S3 or on this machine needs no cluster.
    alone = given.cluster == Path(DEFAULT_CLUSTER) and not given.cluster.exists()
    project = None if alone and _is_place(given.what) else load_project(given.cluster, today())
    found = _target(given, project.cluster.platform.mount_path if project else MOUNT_PATH)
    if found.is_shared:
        project = project or load_project(given.cluster, today())
        where = target.claim_of(found, project)
        return at(given, project, where, lambda place, console: act(found, place, console), again)
    return at(given, project, None, lambda place, console: act(found, place, console), again)


def _is_place(word: str) -> bool:
    return "/" in word or word in {".", ".."}


def _target(given: argparse.Namespace, mount: str) -> Target:
    found = target.resolve(given.what, mount, given.cluster, today())
    if given.action == "pull":
        return target.to_pull(found, given.to, given.local, mount)
    if given.action == "push":
        return target.to_push(found, given.uri)
    return found


def at(
    given: argparse.Namespace, project: Project | None, claim: str | None, act: Act, again: str
) -> int:
    """Act where the file system of a claim is mounted, or here; say what an interruption left."""

    def there(found: Access, opened: Project, console: Console) -> int:
        from megatron_eks.ops.kube.shared_pod import SharedPod  # noqa: PLC0415 -- seldom needed

        assert claim  # noqa: S101 -- otherwise this is not called
        return act(SharedPod(found, opened, given.cluster, console, claim), console)

    try:
        if claim is not None:
            return on_cluster(given, there)
        here = Here(environment_for(project.cluster.region if project else None))
        return act(here, console_here(yes=getattr(given, "yes", False)))
    except KeyboardInterrupt:
        sys.stderr.write(f"\ninterrupted: {again}\n")
        return INTERRUPTED


def _iteration(parser: "argparse._ActionsContainer", text: str) -> None:
    parser.add_argument("--iteration", type=_name, metavar="N", help=text)


def _name(text: str) -> str:
    """Return the directory's name for an iteration, given as a number or by that name."""
    number = text.removeprefix("iter_")
    if not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not an iteration such as 500")
    return f"iter_{int(number):07d}"
