"""Arguments of the commands that talk to Kubernetes."""

import argparse
import os
from pathlib import Path

from megatron_eks.arguments.account import on_aws, with_console
from megatron_eks.arguments.reach import acts, preview, reach, timeout
from megatron_eks.arguments.shared import Commands, cluster, command, runs, yes
from megatron_eks.kubernetes.kubeconfig import files
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.kube import apply
from megatron_eks.ops.kube.access import Access
from megatron_eks.project import MANIFESTS, Project


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _kubeconfig(commands)
    _token(commands)
    _apply(commands)


def _kubeconfig(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "kubeconfig",
        "Write how to reach the cluster into a kubeconfig, without any secret.",
        "  meks kubeconfig\n  meks kubeconfig --kubeconfig ./kubeconfig --role-arn none\n",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="where to write (default: the first of $KUBECONFIG, or ~/.kube/config)",
    )
    parser.add_argument(
        "--role-arn",
        metavar="ARN",
        help="the role to take, or `none` (default: the first of access.admin_role_arns, "
        "unless you are one of them)",
    )
    cluster(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.kube import kubeconfig  # noqa: PLC0415 -- boto3

        (file, *_) = files(given.kubeconfig, os.environ, Path.home())
        return on_aws(given, lambda tools: kubeconfig.run(file, given.role_arn, tools, os.environ))


def _token(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "token",
        "Print a token for an EKS cluster, as that kubeconfig asks for it.",
        "  meks token --cluster-name techpulse --region us-east-2\n",
    )
    parser.add_argument("--cluster-name", required=True, metavar="NAME")
    parser.add_argument("--region", required=True, metavar="REGION")
    parser.add_argument("--role-arn", metavar="ARN", help="the role to take before")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        import boto3  # noqa: PLC0415 -- slow, and few commands need it

        from megatron_eks.ops.aws import session  # noqa: PLC0415 -- with it
        from megatron_eks.ops.kube import token  # noqa: PLC0415 -- with it

        def act(console: Console) -> int:
            aws = session.Aws(boto3.Session(region_name=given.region), given.region)
            return token.run(given.cluster_name, given.role_arn, aws, console)

        return with_console(given, act)


def _apply(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "apply",
        "Bring manifests into the cluster, in order; show what changes, ask, wait.",
        "  meks apply                     the platform; what left it is removed\n"
        "  meks apply --diff              only show what would change\n"
        "  meks apply dist/validation     the checks of each pool\n",
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="manifests or folders of them; default: dist/platform beside the cluster file",
    )
    parser.add_argument("--diff", action="store_true", help="show what would change, and end")
    yes(parser)
    preview(parser)
    timeout(parser, 10)
    reach(parser)

    @acts(parser)
    def act(given: argparse.Namespace, access: Access, project: Project, console: Console) -> int:
        options = apply.Options(
            platform=given.cluster.with_name(MANIFESTS) / "platform",
            paths=given.paths,
            only_diff=given.diff,
            previews=given.preview,
            wait_seconds=given.timeout * 60,
        )
        return apply.run(access, project, options, console)
