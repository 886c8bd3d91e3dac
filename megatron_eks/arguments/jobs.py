"""Arguments of the commands about jobs: submit, status, logs and cancel."""

import argparse
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from megatron_eks.arguments.reach import console_here, on_cluster, preview, reach, timeout
from megatron_eks.arguments.shared import Commands, command, output, today, yes
from megatron_eks.ops import diagnosis
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.endings import INTERRUPTED
from megatron_eks.ops.kube import (
    cancel,
    logs,
    matching,
    overrides,
    overview,
    overview_view,
    saved_logs,
    status,
    status_view,
    submit,
    watching,
)
from megatron_eks.ops.kube import diagnosis as kube_diagnosis
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.rendering import Wish
from megatron_eks.ops.kube.shared_pod import SharedPod
from megatron_eks.project import Project

_WATCH_SECONDS = 5.0


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _submit(commands)
    _status(commands)
    _logs(commands)
    _cancel(commands)


def _submit(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "submit",
        "Start a job, once: the same command again finds it.",
        "  meks submit megatron-cpt-techpulse --follow\n"
        "  meks submit jobs/fsdp-llama-2-7b.yaml --nodes 1 --set training.max_steps=20\n"
        "  meks submit megatron-cpt-techpulse --wait --release-when-done\n",
    )
    parser.add_argument("job", metavar="JOB", help="a job file, or the name of a job in jobs/")
    parser.add_argument("--nodes", metavar="N", help="instead of the file's `nodes`")
    parser.add_argument("--image", metavar="IMAGE", help="instead of the file's `image`")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="any other value of the file, such as training.train_iters=20; may be repeated",
    )
    parser.add_argument("--follow", action="store_true", help="print its logs until it ends")
    parser.add_argument("--wait", action="store_true", help="wait until it ends")
    parser.add_argument(
        "--release-when-done",
        action="store_true",
        help="wait, then give all nodes of its pool back (meks scale POOL 0)",
    )
    preview(parser)
    timeout(parser, 14 * 24 * 60)
    reach(parser)

    def run(given: argparse.Namespace) -> int:
        chosen = [f"{key}={value}" for key in ("nodes", "image") if (value := getattr(given, key))]
        changes = overrides.parse([*given.set, *chosen])
        wish = Wish(given.cluster, given.job, changes, today())
        options = submit.Options(
            follow=given.follow,
            wait=given.wait,
            previews=given.preview,
            wait_seconds=given.timeout * 60,
            command=("meks", *sys.argv[1:]),
            resolve=_digest,
        )

        def act(access: Access, project: Project, console: Console) -> int:
            wanted = options
            if given.release_when_done:
                wanted = replace(options, release=partial(_release, given, access, console))
            return submit.run(access, project, wish, wanted, console)

        return on_cluster(given, act)

    parser.set_defaults(run=run)


def _status(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "status",
        "Say how a job or the cluster does, and what it waits for.",
        "  meks status                             pools, jobs, what is not ready\n"
        "  meks status megatron-cpt-techpulse      each rank, speed beside the plan\n"
        "  meks status megatron-cpt-techpulse --watch\n"
        "  meks status megatron-cpt-techpulse --nodes\n"
        "  meks status -o json | jq .jobs\n",
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help="default: the cluster")
    parser.add_argument(
        "--nodes",
        action="store_true",
        help="by node: state, ranks, use and memory of their GPUs, traffic over EFA",
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=_WATCH_SECONDS,
        metavar="SECONDS",
        help="look again and again, until the job ends; Ctrl-C leaves it be "
        f"(default: every {_WATCH_SECONDS:g})",
    )
    reach(parser)
    output(parser, "tables, or the same as data; with --watch a line of JSON a change")

    def run(given: argparse.Namespace) -> int:
        if given.watch and given.output == "yaml":
            parser.error("--watch writes tables or lines of JSON: -o json")

        def act(access: Access, project: Project, console: Console) -> int:
            client, name = access.client, given.job

            def see() -> watching.View:
                if name is None:
                    found = overview.read(client, project.cluster, nodes=given.nodes)
                    return overview_view.view(found)
                return status_view.view(status.read(client, project, name, nodes=given.nodes))

            again = f"meks status {f'{name} ' if name else ''}{'--nodes ' * given.nodes}--watch"
            options = watching.Options(given.output, given.watch, again)
            return watching.show(client, see, options, console)

        return on_cluster(given, act)

    parser.set_defaults(run=run)


def _logs(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "logs",
        "Print what the ranks of a job write, each line with its rank.",
        "  meks logs megatron-cpt-techpulse --follow\n"
        "  meks logs megatron-cpt-techpulse --rank 1 --tail 50\n"
        "  meks logs megatron-cpt-techpulse --rank 1 --previous\n"
        "  meks logs megatron-cpt-techpulse --follow --grep 'iteration|checkpoint'\n"
        "  meks logs megatron-cpt-techpulse --explain\n"
        "  meks logs --explain --file saved.log\n",
    )
    parser.add_argument("job", nargs="?", metavar="JOB")
    parser.add_argument("--rank", type=_count, metavar="N", help="of this rank alone")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--follow", "-f", action="store_true", help="go on until the job ends; Ctrl-C leaves it be"
    )
    parser.add_argument("--tail", type=_count, metavar="N", help="the last N lines of each rank")
    parser.add_argument("--since", type=_span, metavar="TIME", help="such as 90s, 10m, 2h or 1d")
    parser.add_argument(
        "--grep",
        type=_pattern,
        metavar="REGEX",
        help=f"lines alone in which it is found (in their first {matching.LONGEST:,} characters)",
    )
    which.add_argument(
        "--previous", action="store_true", help="of the containers before the last restart"
    )
    which.add_argument(
        "--explain",
        action="store_true",
        help="not the lines, but what ended the job, and what to do",
    )
    parser.add_argument(
        "--file",
        action="append",
        type=Path,
        metavar="PATH",
        help="explain a log saved anywhere, - for standard input; may be repeated",
    )
    reach(parser)
    output(parser, "the explanation as text, or as data")

    def run(given: argparse.Namespace) -> int:
        options = logs.Options(
            given.rank, given.follow, given.tail, given.since, given.previous, given.grep
        )
        if given.grep and given.explain:
            parser.error("--explain reads all lines: leave --grep out")
        if given.file:
            if given.job or not given.explain:
                parser.error("--file goes with --explain, and without a JOB")
            return diagnosis.of_files(given.file, given.output, console_here())
        if given.job is None:
            parser.error("name a JOB, or a log with --explain --file PATH")
        if given.output != "table" and not given.explain:
            parser.error("-o goes with --explain: logs are printed as they are")

        def act(access: Access, project: Project, console: Console) -> int:
            if not given.follow and saved_logs.are_needed(access.client, project, given.job):
                return _saved(given, access, project, options, console)
            if given.explain:
                found = kube_diagnosis.of_job(access.client, project.cluster, given.job, options)
                return diagnosis.report(found, given.output, console)
            return logs.run(access.client, project.cluster, given.job, options, console)

        return on_cluster(given, act)

    parser.set_defaults(run=run)


def _saved(
    given: argparse.Namespace,
    access: Access,
    project: Project,
    options: logs.Options,
    console: Console,
) -> int:
    """Read what the file system has of a job whose pods are gone."""
    claim = saved_logs.claim_of(project, given.job)
    place = SharedPod(access, project, given.cluster, console, claim)
    words = place, project, given.job, options, console
    try:
        if given.explain:
            return diagnosis.report(saved_logs.explain(*words), given.output, console)
        return saved_logs.run(*words)
    except KeyboardInterrupt:
        console.say("\ninterrupted: nothing was changed")
        return INTERRUPTED


def _cancel(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "cancel",
        "End a job, and wait until its pods are gone.",
        "  meks cancel megatron-cpt-techpulse\n",
    )
    parser.add_argument("job", metavar="JOB")
    yes(parser)
    timeout(parser, 15)
    reach(parser)

    def run(given: argparse.Namespace) -> int:
        def act(access: Access, project: Project, console: Console) -> int:
            seconds = given.timeout * 60
            return cancel.run(access.client, project.cluster, given.job, seconds, console)

        return on_cluster(given, act)

    parser.set_defaults(run=run)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number, 0 or more")
    return int(text)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return matching.compiled(text)
    except matching.BadPatternError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= 24 * 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 1 or more")
    return seconds


def _span(text: str) -> int:
    """Read a time span, in seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if text[-1:] not in units or not text[:-1].isdecimal() or int(text[:-1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 10m, 2h or 1d")
    return int(text[:-1]) * units[text[-1]]


def _digest(image: str) -> str | None:
    """Ask ECR for the digest of an image there; nobody else is asked."""
    if ".dkr.ecr." not in image:
        return None
    from megatron_eks.ops.aws import outputs, session  # noqa: PLC0415 -- boto3, seldom needed

    region = image.split(".dkr.ecr.")[1].split(".", maxsplit=1)[0]
    try:
        aws = session.open_session(region, os.environ)
        return outputs.digest_of(image, aws.client("ecr"))
    except session.ERRORS as error:
        raise session.explained(error) from error


def _release(
    given: argparse.Namespace, access: Access, console: Console, pool: str
) -> Callable[[], int]:
    """Open the account before the job starts; return what gives a pool's nodes back."""
    from megatron_eks.ops.aws import scale, session, tools  # noqa: PLC0415 -- boto3, seldom needed

    try:
        opened = tools.open_tools(given.cluster, today(), console, os.environ)
        scale.node_group(pool, opened)
    except session.ERRORS as error:
        raise session.explained(error) from error

    def release() -> int:
        try:
            return scale.release(pool, opened, access.client)
        except session.ERRORS as error:
            console.say(f"the nodes of {pool} still run: meks scale {pool} 0 --when-idle")
            raise session.explained(error) from error

    return release
