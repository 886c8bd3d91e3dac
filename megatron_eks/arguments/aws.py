"""Arguments of the commands that act on AWS: init, deploy, outputs, build, scale and cleanup."""

import argparse
import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from megatron_eks.arguments.account import on_aws, with_console
from megatron_eks.arguments.reach import opened
from megatron_eks.arguments.shared import (
    Commands,
    OrNothing,
    cluster,
    command,
    count,
    output,
    runs,
    today,
    yes,
)
from megatron_eks.plan.cluster.images import LEVELS, REPOSITORIES, STRATEGIES

if TYPE_CHECKING:
    from megatron_eks.ops.aws.console import Console
    from megatron_eks.ops.aws.tools import Tools

_START = "start"


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _init(commands)
    _deploy(commands)
    _outputs(commands)
    _build(commands)
    _scale(commands)
    _cleanup(commands)


def _init(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "init",
        "Write a cluster file for your account; each question has an answer proposed.",
        "  meks init\n  meks init --region us-east-2 --instance-type g5.8xlarge --yes\n",
    )
    parser.add_argument("--region", help="default: AWS_REGION, or the profile's")
    parser.add_argument("--name", help="of the cluster")
    parser.add_argument("--instance-type", metavar="TYPE", help="of the GPU nodes: p4d.24xlarge")
    parser.add_argument("--zone", help="of the GPU nodes")
    parser.add_argument("--max-nodes", type=count, metavar="N", help="the most GPU nodes ever")
    parser.add_argument(
        "--capacity",
        metavar="KIND|ID",
        help="on_demand (default), spot, or the id of a reservation or Capacity Block",
    )
    parser.add_argument("--lustre-gib", type=count, metavar="N", help="of the file system")
    parser.add_argument(
        "--admin-role-arn", metavar="ARN", help="who administers it; default: your role"
    )
    parser.add_argument(
        "--public-cidr",
        metavar="RANGE",
        help="who reaches it; default: your address, as checkip.amazonaws.com sees it",
    )
    parser.add_argument("--force", action="store_true", help="overwrite a file that is there")
    yes(parser)
    cluster(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.aws import identity, init  # noqa: PLC0415 -- boto3
        from megatron_eks.ops.aws.session import open_session, region_of  # noqa: PLC0415 -- boto3

        wish = init.Wish(
            file=given.cluster,
            force=given.force,
            name=given.name,
            instance_type=given.instance_type,
            zone=given.zone,
            max_nodes=given.max_nodes,
            capacity=given.capacity,
            capacity_gib=given.lustre_gib,
            admin_role_arn=given.admin_role_arn,
            public_cidr=given.public_cidr,
        )

        def act(console: "Console") -> int:
            aws = open_session(region_of(given.region, os.environ), os.environ)
            return init.run(wish, aws, console, today(), identity.public_address)

        return with_console(given, act)


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
    yes(parser)
    cluster(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.aws import deploy  # noqa: PLC0415 -- boto3, which others never need
        from megatron_eks.ops.aws.cdk import Cdk  # noqa: PLC0415 -- with it

        wishes = deploy.Wishes(given.stacks, given.import_existing_resources, given.replace_data)

        def act(tools: "Tools") -> int:
            with tempfile.TemporaryDirectory(prefix="meks-") as folder:
                cdk = Cdk(given.cluster, tools.aws.region, Path(folder) / "cdk.out")
                return deploy.run(wishes, tools, cdk)

        return on_aws(given, act)


def _outputs(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "outputs",
        "Write what AWS chose, and the digests of built images, to outputs.json.",
        "  meks outputs\n  meks outputs -o json | jq -r '.[].BucketName // empty'\n",
    )
    cluster(parser)
    output(parser, "keys and values, or by stack")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.aws import outputs  # noqa: PLC0415 -- boto3

        return on_aws(given, lambda tools: outputs.run(given.output, tools))


def _build(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "build",
        "Build, test and push container images; write their digests to outputs.json.",
        "  meks build\n"
        "  meks build megatron --no-wait\n"
        "  meks build --test-level full --retries 2\n"
        "  meks build --tag-strategy semantic   a tag with the version as well\n"
        "  meks build fsdp --local              with docker or podman on this machine\n",
    )
    parser.add_argument(
        "images",
        nargs="*",
        choices=OrNothing(REPOSITORIES),
        metavar="IMAGE",
        help=f"{' or '.join(REPOSITORIES)}; default: both",
    )
    parser.add_argument(
        "--test-level", choices=LEVELS, help="what images must pass; default: the cluster file's"
    )
    parser.add_argument(
        "--tag-strategy",
        choices=STRATEGIES,
        help="the tag beside that of the content; default: the cluster file's",
    )
    parser.add_argument(
        "--retries",
        type=count,
        default=0,
        metavar="N",
        help="starts again after failures that may pass, of a registry or a machine; default: 0",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--no-wait", action="store_true", help="start, and come back at once")
    place.add_argument("--local", action="store_true", help="docker or podman on this machine")
    cluster(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.aws import build, local_build  # noqa: PLC0415 -- boto3

        wishes = build.Wishes(given.test_level, given.tag_strategy, given.retries)
        if given.local:
            return on_aws(given, lambda tools: local_build.run(given.images, tools, wishes))
        wait = not given.no_wait
        return on_aws(given, lambda tools: build.run(given.images, tools, wait=wait, wishes=wishes))


def _scale(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "scale",
        "Take GPU nodes and wait until their GPUs can be used, or give them back.",
        "  meks scale p4d 2                 two nodes, at their price from now on\n"
        "  meks scale p5 8 --at start       when the pool's Capacity Block starts\n"
        "  meks scale p4d 0 --when-idle     when the last job's pod has ended\n",
    )
    parser.add_argument("pool", metavar="POOL", help="of the cluster file")
    parser.add_argument("nodes", type=count, metavar="N", help="how many, up to max_nodes")
    parser.add_argument(
        "--at",
        type=_moment,
        metavar="TIME",
        help="wait until then: 2026-12-01T11:30Z, or `start` of the reservation",
    )
    parser.add_argument(
        "--when-idle", action="store_true", help="wait until no job's pod is on the pool"
    )
    parser.add_argument(
        "--minutes",
        type=count,
        default=30,
        metavar="M",
        help="how long to wait for nodes before they are given back (default: 30)",
    )
    yes(parser)
    cluster(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.aws import scale  # noqa: PLC0415 -- boto3

        wish = scale.Wish(
            pool=given.pool,
            nodes=given.nodes,
            at=given.at if isinstance(given.at, datetime) else None,
            at_start=given.at == _START,
            when_idle=given.when_idle,
            minutes=given.minutes,
        )
        return on_aws(
            given, lambda tools: scale.run(wish, tools, lambda: opened(tools.plan).client)
        )


def _cleanup(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "cleanup",
        "Delete a cluster in order, and say what remains; data stay unless named.",
        "  meks cleanup\n"
        "  meks cleanup --delete-storage    file systems, buckets, keys and network too\n",
    )
    parser.add_argument(
        "--delete-storage", action="store_true", help="data, checkpoints and the network too"
    )
    parser.add_argument(
        "--delete-images", action="store_true", help="repositories with all built images too"
    )
    parser.add_argument(
        "--confirm", default="", metavar="NAME", help="the cluster's name, for --delete-storage"
    )
    yes(parser)
    cluster(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.aws import cleanup  # noqa: PLC0415 -- boto3

        wish = cleanup.Wish(given.delete_storage, given.delete_images, given.confirm)
        return on_aws(
            given, lambda tools: cleanup.run(wish, tools, lambda: opened(tools.plan).client)
        )


def _moment(text: str) -> "datetime | str":
    if text == _START:
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time with its zone, such as 2026-12-01T11:30Z"
        )
    return moment
