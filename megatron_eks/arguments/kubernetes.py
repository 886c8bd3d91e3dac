"""Arguments of the commands that talk to Kubernetes."""

import argparse
from pathlib import Path

from megatron_eks.arguments.reach import on_cluster, preview, reach, timeout, yes
from megatron_eks.arguments.shared import Commands, command
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.kube import apply
from megatron_eks.ops.kube.access import Access
from megatron_eks.project import Project


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _apply(commands)


def _apply(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "apply",
        "Bring manifests into the cluster, in order; show what changes, ask, wait.",
        "  meks apply                     the platform; what is no longer in it is removed\n"
        "  meks apply --diff              only show what would change\n"
        "  meks apply dist/validation     the checks of each pool\n",
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="manifests or folders of them; default: dist/platform, as `make synth` wrote it",
    )
    parser.add_argument("--diff", action="store_true", help="show what would change, and end")
    yes(parser)
    preview(parser)
    timeout(parser, 10)
    reach(parser)

    def run(given: argparse.Namespace) -> int:
        options = apply.Options(
            paths=given.paths,
            only_diff=given.diff,
            previews=given.preview,
            wait_seconds=given.timeout * 60,
        )

        def act(access: Access, project: Project, console: Console) -> int:
            return apply.run(access, project, options, console)

        return on_cluster(given, act)

    parser.set_defaults(run=run)
