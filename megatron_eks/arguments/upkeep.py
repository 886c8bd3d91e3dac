"""Arguments of the commands about what a cluster costs, and about its secrets."""

import argparse
import os
from collections.abc import Sequence

from megatron_eks.arguments.reach import acts, console_here, opened, reach
from megatron_eks.arguments.shared import Commands, command, output, runs, today, yes
from megatron_eks.config.codes import Code
from megatron_eks.ops import cost
from megatron_eks.ops.aws.billed import Instance
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube import access, holdings, secrets
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.jobs import NoJob
from megatron_eks.project import Project, load_project

_KEY = "token"


class _Discreet(argparse.ArgumentParser):
    """Does not repeat what it does not know: it may be the value itself."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse what is left over here, before the parser above shows it."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(
                "there are arguments that are not known here, and not shown, for one may be the "
                "value: that is read from standard input, or asked for. One that was typed is in "
                "the shell's history now; make a new one"
            )
        return found, left


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _cost(commands)
    _secret(commands)


def _cost(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "cost",
        "Say what runs now and costs, since when, for which job, and what for none.",
        "  meks cost                            nodes, storage, network, every job\n"
        "  meks cost megatron-cpt-techpulse     so far, and to its end\n"
        "  meks cost -o json | jq .usd_per_hour\n",
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help="of the jobs, this one alone")
    reach(parser)
    output(parser, "tables, or the same as data")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        console = console_here()
        project = load_project(given.cluster, today())
        instances, no_instances = _instances(project)
        holdings, no_holdings, is_local = _holdings(given, project, console)
        if is_local and "AWS_ENDPOINT_URL" not in os.environ:
            # What the account of this machine's credentials runs is something else.
            instances = None
            no_instances = "this is a cluster of `meks local up`: nobody is billed for it"
        if isinstance(no_holdings, Failure) and (given.job or isinstance(no_instances, Failure)):
            raise no_holdings
        notes = [_note(each) for each in (no_holdings, no_instances) if each]
        return cost.run(project, holdings, instances, notes, output=given.output, console=console)


def _note(why: Failure | str) -> str:
    return why if isinstance(why, str) else f"{why.found} [{why.finding}] - {why.remedy}"


def _holdings(
    given: argparse.Namespace, project: Project, console: Console
) -> tuple[holdings.Holdings | None, Failure | None, bool]:
    """Ask the API server; say why not where it cannot be asked."""
    try:
        found = opened(project.cluster, given.kubeconfig, given.context)
    except Failure as failure:
        if failure.finding is Code.OTHER_KUBERNETES:
            raise
        return None, failure, False
    try:
        held = holdings.read(found.client, project.cluster, console.clock.now(), given.job)
    except NoJob as failure:
        raise failure.beside([job.name for job in project.jobs]) from failure
    except access.ERRORS as error:
        return None, access.explained(error), False
    finally:
        found.client.close()
    return held, None, found.is_local


def _instances(project: Project) -> tuple[list[Instance] | None, Failure | str]:
    """Ask EC2; say why not where it cannot be asked."""
    from megatron_eks.ops.aws import billed, session  # noqa: PLC0415 -- boto3

    try:
        aws = session.open_session(project.cluster.region, os.environ)
        return billed.instances(project.cluster.eks_name, aws.client("ec2")), ""
    except session.ERRORS as error:
        return None, session.explained(error)


def _secret(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "secret",
        "Keep the tokens of jobs in the cluster: set, ls and rm. No value is ever shown.",
        "  meks secret set hugging-face                 asks for it, without echo\n"
        "  meks secret set hugging-face --key token < FILE\n"
        "  meks secret ls -o json\n"
        "  meks secret rm hugging-face --yes\n",
    )
    actions: Commands[argparse.ArgumentParser] = parser.add_subparsers(
        dest="action", required=True, metavar="ACTION", parser_class=_Discreet
    )
    _set(actions)
    _ls(actions)
    _rm(actions)


def _set(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "set",
        "Store what standard input holds, or what is typed, under one key of a Secret.",
        "  meks secret set hugging-face\n  meks secret set hugging-face < FILE\n",
    )
    parser.add_argument("name", metavar="NAME", help="what job files have under token_secret")
    parser.add_argument(
        "--key", default=_KEY, metavar="KEY", help=f"default: {_KEY}, which jobs read"
    )
    reach(parser)

    @acts(parser)
    def act(given: argparse.Namespace, access: Access, project: Project, console: Console) -> int:
        return secrets.set_value(access.client, project, given.name, given.key, console)


def _ls(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "ls",
        "List names, keys, age since the last change, and the jobs that name each.",
        "  meks secret ls\n",
    )
    reach(parser)
    output(parser, "a table, or the same as data")

    @acts(parser)
    def act(given: argparse.Namespace, access: Access, project: Project, console: Console) -> int:
        return secrets.show(access.client, project, given.output, console)


def _rm(actions: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        actions,
        "rm",
        "Delete a Secret, after saying who needs it.",
        "  meks secret rm hugging-face\n",
    )
    parser.add_argument("name", metavar="NAME")
    yes(parser)
    reach(parser)

    @acts(parser)
    def act(given: argparse.Namespace, access: Access, project: Project, console: Console) -> int:
        return secrets.remove(access.client, project, given.name, console)
