"""Arguments of the commands that act on AWS: init, deploy, outputs, build, scale and cleanup."""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.arguments.shared import Commands, cluster, command, output, today
from megatron_eks.plan.images import REPOSITORIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from megatron_eks.ops.aws.tools import Tools


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _deploy(commands)
    _outputs(commands)
    _build(commands)


def _deploy(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "deploy",
        "Make or change the stacks of a cluster; no GPU node starts or ends by that.",
        "  meks deploy                  all stacks, each change shown and asked for\n"
        "  meks deploy Storage --yes    one stack, without questions\n",
    )
    parser.add_argument(
        "stacks", nargs="*", metavar="STACK", help="such as Storage or techpulse-Storage"
    )
    parser.add_argument(
        "--import-existing-resources",
        action="store_true",
        help="take over what was kept when an earlier cluster of this name was deleted",
    )
    parser.add_argument(
        "--replace-data",
        action="store_true",
        help="allow changes that need a new, empty file system, bucket or repository",
    )
    _yes(parser)
    cluster(parser)

    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.aws import deploy  # noqa: PLC0415 -- boto3, which others never need
        from megatron_eks.ops.aws.cdk import Cdk  # noqa: PLC0415 -- with it

        wishes = deploy.Wishes(given.stacks, given.import_existing_resources, given.replace_data)

        def act(tools: "Tools") -> int:
            with tempfile.TemporaryDirectory(prefix="meks-") as folder:
                cdk = Cdk(given.cluster, tools.aws.region, Path(folder) / "cdk.out")
                return deploy.run(wishes, tools, cdk)

        return _on_aws(given, act)

    parser.set_defaults(run=run)


def _outputs(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "outputs",
        "Write what AWS chose, and the digests of built images, to outputs.json.",
        "  meks outputs\n  meks outputs -o json | jq -r '.[].BucketName // empty'\n",
    )
    cluster(parser)
    output(parser, "keys and values, or by stack")

    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.aws import outputs  # noqa: PLC0415 -- boto3

        return _on_aws(given, lambda tools: outputs.run(given.output, tools))

    parser.set_defaults(run=run)


def _build(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "build",
        "Build container images on AWS, and write their digests to outputs.json.",
        "  meks build\n  meks build megatron --no-wait\n",
    )
    parser.add_argument(
        "images",
        nargs="*",
        choices=[*REPOSITORIES, []],
        metavar="IMAGE",
        help=f"{' or '.join(REPOSITORIES)}; default: both",
    )
    parser.add_argument("--no-wait", action="store_true", help="start, and come back at once")
    cluster(parser)

    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.aws import build  # noqa: PLC0415 -- boto3

        return _on_aws(given, lambda tools: build.run(given.images, tools, wait=not given.no_wait))

    parser.set_defaults(run=run)


def _yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="answer every question with yes")


def _on_aws(given: argparse.Namespace, act: "Callable[[Tools], int]") -> int:
    """Open the cluster's account and act in it; what boto3 raises becomes a plain failure."""
    from megatron_eks.ops.aws.console import Console, SystemClock  # noqa: PLC0415 -- boto3
    from megatron_eks.ops.aws.session import ERRORS, explained  # noqa: PLC0415 -- boto3
    from megatron_eks.ops.aws.tools import open_tools  # noqa: PLC0415 -- boto3

    console = Console(
        sys.stdin, sys.stdout, sys.stderr, SystemClock(), yes=getattr(given, "yes", False)
    )
    try:
        return act(open_tools(given.cluster, today(), console, os.environ))
    except ERRORS as error:
        raise explained(error) from error
