"""Arguments of `meks local`."""

import argparse

from megatron_eks.arguments.shared import Commands, cluster, command, one_or_more, output, today


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    parser = command(
        commands,
        "local",
        "Run a Kubernetes control plane and an AWS on this machine, without any account.",
    )
    parser.add_argument(
        "action",
        choices=("up", "down", "status", "limits"),
        help="start one (the first time builds it, in about six minutes); stop it; describe it; "
        "list what its AWS does not check",
    )
    parser.add_argument(
        "--nodes",
        type=one_or_more,
        default=0,
        metavar="N",
        help="run pods as processes here, on N nodes of each pool; default: simulate all nodes",
    )
    parser.add_argument(
        "--empty",
        action="store_true",
        help="start as an empty account: neither platform nor nodes but those that come by "
        "`meks deploy`, `scale` and `apply`; with --nodes all of them run their pods here",
    )
    parser.add_argument(
        "--yes", action="store_true", help="with `down`: delete the files of /shared without asking"
    )
    cluster(parser)
    output(parser, "text, or the same as data")
    parser.set_defaults(run=_local)


def _local(given: argparse.Namespace) -> int:
    # The local cluster's parts, which no other command should wait for.
    from megatron_eks.ops import local  # noqa: PLC0415 -- as above

    wish = local.Wish(given.cluster, today(), given.nodes, given.empty, given.yes)
    return local.run(given.action, wish, given.output)
