"""Arguments of `meks data`."""

import argparse
from pathlib import PurePosixPath
from posixpath import normpath

from megatron_eks.arguments.files import at
from megatron_eks.arguments.reach import reach
from megatron_eks.arguments.shared import Commands, cluster, command, output, runs, today
from megatron_eks.config.codes import Code
from megatron_eks.ops import data
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.endings import USAGE
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.programs import Place
from megatron_eks.project import Project, load_project


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    parser = command(
        commands,
        "data",
        "Bring data to the cluster's bucket and to /shared, and verify data sets.",
        "  meks data push ./corpus\n"
        "  meks data fetch s3://BUCKET/data/corpus/ /shared/data/corpus\n"
        "  meks data verify /shared/data/techpulse_text_document\n",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _push(actions)
    _fetch(actions)
    _verify(actions)


def _push(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "push",
        "Send files and folders to S3; what is there with the same bytes stays.",
        "  meks data push ./corpus                      to s3://BUCKET/data/corpus\n"
        "  meks data push a.jsonl b.jsonl s3://BUCKET/data/techpulse\n",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="LOCAL... [S3_URI]",
        help="files and folders; default of S3_URI: data/ in the cluster's bucket (outputs.json)",
    )
    cluster(parser)
    output(parser, "a line, or what was sent as data")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        project = load_project(given.cluster, today())
        paths, uri = data.destination(given.paths, given.cluster)

        def act(place: Place, console: Console) -> int:
            plan = project.cluster
            return data.push(paths, uri, plan, place, output=given.output, console=console)

        return at(given, project, None, act, "what was sent stays, and the same command goes on")


def _fetch(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "fetch",
        "Bring an object of S3, or all below a prefix, to /shared.",
        "  meks data fetch s3://BUCKET/data/corpus/ /shared/data/corpus\n",
    )
    parser.add_argument("uri", metavar="S3_URI", help="an object, or a prefix with a slash")
    parser.add_argument(
        "directory", metavar="DIR", help="below /shared; it appears when it is whole"
    )
    reach(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        project = load_project(given.cluster, today())
        claim = _claim(given.directory, project)
        if claim is None:
            mount = project.cluster.platform.mount_path
            found, remedy = f"{given.directory} is not below {mount}", "aws s3 cp fetches to here"
            raise Failure(Code.NOTHING_TO_SEND, found, remedy, exit_code=USAGE)

        def act(place: Place, console: Console) -> int:
            return data.fetch(given.uri, given.directory, place, console)

        return at(given, project, claim, act, "what was fetched stays, the same command goes on")


def _verify(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "verify",
        "Read a prepared data set back; ends with 4 if it is not what was written.",
        "  meks data verify /shared/data/techpulse_text_document\n"
        "  meks data verify ./techpulse_text_document     of this machine\n",
    )
    parser.add_argument("prefix", metavar="PREFIX", help="the data set, without .bin and .idx")
    parser.add_argument("--tokenizer", metavar="DIR", help="the one that training will use")
    reach(parser)
    output(parser, "its numbers as lines, or as data")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        project = load_project(given.cluster, today())
        claim = _claim(given.prefix, project)

        def act(place: Place, console: Console) -> int:
            return data.verify(given.prefix, given.tokenizer, place, given.output, console)

        return at(given, project, claim, act, "nothing was changed")


def _claim(path: str, project: Project) -> str | None:
    platform = project.cluster.platform
    # A pod has no links of this machine's: what `..` means is what it says.
    inside = PurePosixPath(normpath(path)).is_relative_to(platform.mount_path)
    return platform.claim if inside else None
