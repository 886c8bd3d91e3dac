"""Arguments of the commands for looking closer: shell, nodes, support-bundle; and completion."""

import argparse
import sys
from pathlib import Path

from megatron_eks.arguments.reach import console_here, on_cluster, opened, reach
from megatron_eks.arguments.shared import Commands, command, count, output, runs, today, yes
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.endings import DONE
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.output import FORMATS
from megatron_eks.project import Project, load_project


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _shell(commands)
    _nodes(commands)
    _support_bundle(commands)


def add_completion(
    commands: "Commands[argparse.ArgumentParser]", parser: argparse.ArgumentParser
) -> None:
    """Add the command that knows all others."""
    own = command(
        commands,
        "completion",
        "Print what lets your shell complete commands, options, jobs and pools.",
        "  source <(meks completion bash)                        in ~/.bashrc\n"
        "  meks completion zsh > ~/.zfunc/_meks                  a folder of $fpath\n"
        "  meks completion fish > ~/.config/fish/completions/meks.fish\n",
    )
    own.add_argument(
        "shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish"
    )

    @runs(own)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops import completion  # noqa: PLC0415 -- shtab

        sys.stdout.write(completion.script(parser, given.shell))
        return DONE


def _shell(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "shell",
        "Open a shell in a rank's container, or run one command there.",
        "  meks shell megatron-cpt-techpulse\n"
        "  meks shell megatron-cpt-techpulse --rank 1 -- nvidia-smi\n"
        "  meks shell megatron-cpt-techpulse --all-ranks -- df -h /shared\n"
        "  meks shell megatron-cpt-techpulse -- cat /shared/notes.txt > notes.txt\n\n"
        "The exit code is the command's; with --all-ranks 1 if it failed in a rank.\n",
    )
    parser.usage = "%(prog)s [options] JOB [-- COMMAND...]"
    parser.add_argument("job", metavar="JOB")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rank", type=count, metavar="N", help="where (default: 0)")
    which.add_argument(
        "--all-ranks",
        action="store_true",
        help="run the command in all ranks, each line with its rank",
    )
    reach(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        # The WebSocket library, which nothing else needs.
        from megatron_eks.ops.kube import shell  # noqa: PLC0415

        if given.all_ranks and not given.inner:
            parser.error("--all-ranks needs a command: meks shell JOB --all-ranks -- COMMAND")
        options = shell.Options(given.rank, given.all_ranks, given.inner)

        def act(access: Access, project: Project, console: Console) -> int:
            return shell.run(access.client, project.cluster, given.job, options, console)

        return on_cluster(given, act)


def _nodes(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "nodes",
        "Show the nodes, name those that fail, keep jobs away from them.",
        "  meks nodes                      all of them\n"
        "  meks nodes p4d -o json          of a pool\n"
        "  meks nodes --suspect            those that fail; offers to cordon them\n"
        "  meks nodes cordon ip-10-0-3-7.ec2.internal --reason 'Xid 79'\n"
        "  meks nodes uncordon i-0123456789abcdef0\n",
    )
    parser.usage = "%(prog)s [options] [POOL | cordon NODE... | uncordon NODE...]"
    parser.add_argument(
        "what",
        nargs="*",
        metavar="POOL",
        help="a pool; or cordon or uncordon, and nodes by name or instance id",
    )
    parser.add_argument(
        "--suspect",
        action="store_true",
        help="those whose hardware reports errors, or on which ranks failed again and again; "
        "exit code 4 if there are any",
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="why they are cordoned")
    yes(parser)
    reach(parser)
    output(parser, "a table, or the same as data")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.kube import nodes  # noqa: PLC0415 -- logs' signatures

        act, *names = given.what or [None]
        changes = act in {"cordon", "uncordon"}
        if changes and (not names or given.suspect):
            parser.error(f"name the nodes: meks nodes {act} NODE...")
        if not changes and (names or (given.suspect and act)):
            parser.error("one POOL, or --suspect, or cordon or uncordon and NODE...")
        if given.reason and act != "cordon":
            parser.error("--reason goes with cordon")

        def do(access: Access, project: Project, console: Console) -> int:
            client, plan = access.client, project.cluster
            if act == "cordon":
                return nodes.cordon(client, plan, names, given.reason, console)
            if act == "uncordon":
                return nodes.uncordon(client, plan, names, console)
            if given.suspect:
                return nodes.suspicious(client, plan, given.output, console)
            return nodes.run(client, plan, act, given.output, console)

        return on_cluster(given, do)


def _support_bundle(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "support-bundle",
        "Collect what somebody else needs to help, without secrets, in one file.",
        "  meks support-bundle\n"
        "  meks support-bundle megatron-cpt-techpulse --output case-1234.tar.gz\n\n"
        "Values are shown only of names that this project sets; what looks like a secret\n"
        "is taken out of logs, and account ids, mail and public IP addresses everywhere.\n",
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help="with its ranks' logs (the end)")
    parser.add_argument(
        "--output",
        dest="file",
        type=Path,
        metavar="FILE.tar.gz",
        help="where to write (default: a name with the time)",
    )
    reach(parser)
    parser.add_argument(
        "-o", dest="output", choices=FORMATS, default="table", help="what is in it, and what not"
    )

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        from megatron_eks.ops.support import bundle  # noqa: PLC0415 -- reads everything

        wish = bundle.Wish(
            cluster_file=given.cluster,
            job=given.job,
            file=given.file,
            project=lambda: load_project(given.cluster, today()),
            access=lambda project: opened(project.cluster, given.kubeconfig, given.context),
            home=Path.home(),
        )
        return bundle.run(wish, given.output, console_here())
