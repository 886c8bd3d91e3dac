"""Arguments of `meks logs`."""

import argparse
import re
from pathlib import Path

from megatron_eks.arguments.reach import console_here, on_cluster, reach
from megatron_eks.arguments.shared import Commands, command, count, output, runs
from megatron_eks.ops import diagnosis
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.endings import INTERRUPTED
from megatron_eks.ops.kube import diagnosis as kube_diagnosis
from megatron_eks.ops.kube import logs, matching, saved_logs
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.shared_pod import SharedPod
from megatron_eks.project import Project


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
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
    parser.add_argument("--rank", type=count, metavar="N", help="of this rank alone")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--follow", "-f", action="store_true", help="go on until the job ends; Ctrl-C leaves it be"
    )
    parser.add_argument("--tail", type=count, metavar="N", help="the last N lines of each rank")
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
    parser.add_argument(
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

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        options = logs.Options(
            given.rank, given.follow, given.tail, given.since, given.previous, given.grep
        )
        if given.explain and (given.grep or given.follow):
            parser.error("--explain reads all lines there are: leave out --grep and --follow")
        if given.file:
            if given.job or not given.explain:
                parser.error("--file goes with --explain, and without a JOB")
            return diagnosis.of_files(given.file, given.output, console_here())
        if given.job is None:
            parser.error("name a JOB, or a log with --explain --file PATH")
        if given.output != "table" and not given.explain:
            parser.error("-o goes with --explain: logs are printed as they are")

        def act(access: Access, project: Project, console: Console) -> int:
            words = access.client, project, given.job, given.rank
            if not given.follow and saved_logs.are_needed(*words):
                return _saved(given, access, project, options, console)
            if given.explain:
                found = kube_diagnosis.of_job(access.client, project.cluster, given.job, options)
                return diagnosis.report(found, given.output, console)
            return logs.run(access.client, project.cluster, given.job, options, console)

        return on_cluster(given, act)


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
            found = saved_logs.explain(*words, client=access.client)
            return diagnosis.report(found, given.output, console)
        return saved_logs.run(*words)
    except KeyboardInterrupt:
        console.say("\ninterrupted: nothing was changed")
        return INTERRUPTED


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return matching.compiled(text)
    except matching.BadPatternError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _span(text: str) -> int:
    """Read a time span, in seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if text[-1:] not in units or not text[:-1].isdecimal() or int(text[:-1]) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 90s, 10m, 2h or 1d")
    return int(text[:-1]) * units[text[-1]]
