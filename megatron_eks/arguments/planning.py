"""Arguments of the commands that read files alone: validate, plan, predict, check, explain."""

import argparse
import sys
from functools import partial
from pathlib import Path

from megatron_eks.arguments.reach import on_cluster, reach
from megatron_eks.arguments.shared import Commands, cluster, command, output, runs, today
from megatron_eks.ops import explain, plan, predict, search, validate


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    parser = command(commands, "validate", "Check a cluster file and its job files.")
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="cluster or job files; default: all of the project",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="ask the cluster too, what each job changes of the run before it",
    )
    reach(parser)
    output(parser, "findings one a line, or as a list")
    parser.set_defaults(run=_validate)

    planning = command(
        commands, "plan", "Print what will exist, what it costs, and whether jobs fit."
    )
    planning.add_argument(
        "--search",
        nargs="?",
        const="",
        metavar="JOB",
        help="the fastest layouts that fit, of one Megatron job or of all",
    )
    planning.add_argument(
        "--write", type=Path, metavar="FILE", help="with --search JOB: the job with the best layout"
    )
    planning.add_argument(
        "--png", type=Path, metavar="FILE", help="with --search JOB: memory against step time"
    )
    cluster(planning)
    output(planning, "tables, or everything")

    @runs(planning)
    def run(given: argparse.Namespace) -> int:
        if given.search is not None:
            wanted = (given.write, given.png)
            return search.run(given.cluster, given.search, wanted, given.output, today())
        if given.write or given.png:
            planning.error("--write and --png go with --search JOB")
        return plan.run(given.cluster, given.output, today())

    parser = command(
        commands, "predict", "Predict memory and speed of a run on hardware of your own."
    )
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="GPU, model, layout and batch; docs/predictions.md"
    )
    output(parser, "tables, or the same as data")
    parser.set_defaults(run=lambda given: predict.run(given.file, given.output))

    parser = command(commands, "check", "Check templates and manifests that this project rendered.")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="files or folders")
    output(parser, "findings one a line, or as a list")
    parser.set_defaults(run=_check)

    parser = command(commands, "explain", "Say what a code means, why, and what to do.")
    parser.add_argument("code", metavar="CODE", help="such as MEKS-0502, or 0502")
    output(parser, "text, or the same as data")
    parser.set_defaults(run=lambda given: explain.run(given.code, given.output, sys.stdout))


def _validate(given: argparse.Namespace) -> int:
    read = partial(validate.run, given.files, given.cluster, given.output, today())
    if not given.live:
        return read()
    from megatron_eks.ops.kube import resume  # noqa: PLC0415 -- seldom needed

    return on_cluster(
        given,
        lambda access, project, _: read(partial(resume.findings, access.client, project.cluster)),
    )


def _check(given: argparse.Namespace) -> int:
    # With all guards, which no other command should wait for.
    from megatron_eks.ops import check  # noqa: PLC0415 -- as above

    return check.run(given.paths, given.output, sys.stdout)
