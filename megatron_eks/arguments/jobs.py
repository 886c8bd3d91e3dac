"""Arguments of the commands about jobs: submit, status and cancel, with logs beside them."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from megatron_eks.arguments import job_logs
from megatron_eks.arguments.reach import on_cluster, preview, reach, timeout
from megatron_eks.arguments.shared import Commands, command, output, runs, today, yes
from megatron_eks.config.job import TrainingJob
from megatron_eks.kubernetes.client import ApiError
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube import (
    cancel,
    overrides,
    overview,
    overview_view,
    saved_logs,
    status,
    status_view,
    submit,
    watching,
)
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.kube.logs import Options
from megatron_eks.ops.kube.rendering import Wish
from megatron_eks.ops.kube.shared_pod import SharedPod
from megatron_eks.plan.cluster.data_access import DataAccess
from megatron_eks.project import OUTPUTS, Project

_WATCH_SECONDS = 5.0
_RECORD_SECONDS = 60.0
"""For the pod that reads a record: the rest of a status is known without it."""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the commands of this group."""
    _submit(commands)
    _status(commands)
    job_logs.add(commands)
    _cancel(commands)


def _submit(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "submit",
        "Start a job, once: the same command again finds it.",
        "  meks submit megatron-cpt-techpulse --follow\n"
        "  meks submit jobs/fsdp-llama-2-7b.yaml --nodes 1 --set training.max_steps=20\n"
        "  meks submit megatron-cpt-techpulse --wait --release-when-done\n",
    )
    parser.add_argument("job", metavar="JOB", help="a job file, or the name of a job in jobs/")
    parser.add_argument("--nodes", metavar="N", help="instead of the file's `nodes`")
    parser.add_argument("--image", metavar="IMAGE", help="instead of the file's `image`")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="any other value of the file, such as training.train_iters=20; may be repeated",
    )
    parser.add_argument("--follow", action="store_true", help="print its logs until it ends")
    parser.add_argument("--wait", action="store_true", help="wait until it ends")
    parser.add_argument(
        "--release-when-done",
        action="store_true",
        help="wait, then give all nodes of its pool back (meks scale POOL 0)",
    )
    preview(parser)
    timeout(parser, 14 * 24 * 60)
    reach(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        chosen = [f"{key}={value}" for key in ("nodes", "image") if (value := getattr(given, key))]
        changes = overrides.parse([*given.set, *chosen])
        wish = Wish(given.cluster, given.job, changes, today())
        options = submit.Options(
            follow=given.follow,
            wait=given.wait,
            previews=given.preview,
            wait_seconds=given.timeout * 60,
            command=("meks", *sys.argv[1:]),
            resolve=_digest,
        )

        def act(access: Access, project: Project, console: Console) -> int:
            wanted = replace(
                options,
                built=partial(_built, given, project, console),
                out_of_reach=partial(_out_of_reach, project, console),
                checkpoint_in=partial(_checkpoint_in, given, access, project, console),
            )
            if given.release_when_done:
                wanted = replace(wanted, release=partial(_release, given, access, console))
            return submit.run(access, project, wish, wanted, console)

        return on_cluster(given, act)


def _checkpoint_in(
    given: argparse.Namespace, access: Access, project: Project, console: Console, job: TrainingJob
) -> bool:
    from megatron_eks.ops.ckpt import listing, target  # noqa: PLC0415 -- seldom needed
    from megatron_eks.ops.kube.shared_pod import SharedPod  # noqa: PLC0415

    found = replace(
        target.at_directory(job.checkpoint.directory, project.cluster.platform.mount_path),
        pool=job.pool,
    )
    claim = target.claim_of(found, project)
    place = SharedPod(access, project, given.cluster, console, claim)
    return listing.holds_one(job.checkpoint.directory, place, console)


def _status(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "status",
        "Say how a job or the cluster does, and what it waits for.",
        "  meks status                             pools, jobs, what is not ready\n"
        "  meks status megatron-cpt-techpulse      each rank, speed beside the plan\n"
        "  meks status megatron-cpt-techpulse --watch\n"
        "  meks status megatron-cpt-techpulse --nodes\n"
        "  meks status -o json | jq .jobs\n",
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help="default: the cluster")
    parser.add_argument(
        "--nodes",
        action="store_true",
        help="by node: state, ranks, use and memory of their GPUs, traffic over EFA",
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=_seconds,
        const=_WATCH_SECONDS,
        metavar="SECONDS",
        help="look again and again, until the job ends; Ctrl-C leaves it be "
        f"(default: every {_WATCH_SECONDS:g})",
    )
    reach(parser)
    output(parser, "tables, or the same as data; with --watch a line of JSON a change")

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        if given.watch and given.output == "yaml":
            parser.error("--watch writes tables or lines of JSON: -o json")

        def act(access: Access, project: Project, console: Console) -> int:
            client, name = access.client, given.job

            @cache
            def record() -> Sequence[str]:
                return _record(given, access, project, console)

            def see() -> watching.View:
                if name is None:
                    found = overview.read(client, project.cluster, nodes=given.nodes)
                    return overview_view.view(found)
                read = status.read(client, project, name, nodes=given.nodes, record=record)
                return status_view.view(read)

            again = f"meks status {f'{name} ' if name else ''}{'--nodes ' * given.nodes}--watch"
            options = watching.Options(given.output, given.watch, again)
            return watching.show(client, see, options, console)

        return on_cluster(given, act)


def _record(
    given: argparse.Namespace, access: Access, project: Project, console: Console
) -> Sequence[str]:
    """Read what a job's ranks have printed; a cluster that cannot tell has an end to show too."""
    claim = saved_logs.claim_of(project, given.job)
    place = SharedPod(access, project, given.cluster, console, claim, _RECORD_SECONDS)
    try:
        return saved_logs.read(place, project, given.job, Options(), console, both=True)
    except Failure as failure:
        console.say(f"note: {failure}")
    except ApiError as error:
        console.say(f"note: the record of {given.job} cannot be read: {error}")
    return ()


def _cancel(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = command(
        commands,
        "cancel",
        "End a job, and wait until its pods are gone.",
        "  meks cancel megatron-cpt-techpulse\n",
    )
    parser.add_argument("job", metavar="JOB")
    yes(parser)
    timeout(parser, 15)
    reach(parser)

    @runs(parser)
    def run(given: argparse.Namespace) -> int:
        def act(access: Access, project: Project, console: Console) -> int:
            seconds = given.timeout * 60
            return cancel.run(access.client, project.cluster, given.job, seconds, console)

        return on_cluster(given, act)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= 24 * 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 1 or more")
    return seconds


def _digest(image: str) -> str | None:
    """Ask ECR for the digest of an image there; nobody else is asked."""
    if ".dkr.ecr." not in image:
        return None
    from megatron_eks.ops.aws import build_records, session  # noqa: PLC0415 -- boto3, seldom needed

    region = image.split(".dkr.ecr.")[1].split(".", maxsplit=1)[0]
    repository, _, tag = image.rpartition(":")
    try:
        aws = session.open_session(region, os.environ)
        found = build_records.digest_of(repository, {"imageTag": tag}, aws.client("ecr"))
    except session.ERRORS as error:
        raise session.explained(error) from error
    return found and f"{repository}@{found}"


def _built(given: argparse.Namespace, project: Project, console: Console) -> Mapping[str, str]:
    """Ask CodeBuild for the digests of images of which outputs.json has the tag only."""
    from megatron_eks.ops.aws import outputs, session, tools  # noqa: PLC0415 -- boto3, as above

    try:
        aws = session.open_session(project.cluster.region, os.environ)
        opened = tools.Tools(given.cluster, project, aws, console)
        stacks = outputs.read(given.cluster.with_name(OUTPUTS)).values()
        values = {key: value for each in stacks for key, value in each.items()}
        return outputs.recorded(values, opened)
    except session.ERRORS as error:
        raise session.explained(error) from error


def _out_of_reach(
    project: Project, console: Console, role: str, access: DataAccess
) -> Sequence[str]:
    """Ask IAM for the jobs' role, where a job needs it."""
    if not access.grants:
        return ()
    from megatron_eks.ops.aws import job_access  # noqa: PLC0415 -- boto3, seldom needed

    return job_access.out_of_reach(role, access, project.cluster.region, console)


def _release(
    given: argparse.Namespace, access: Access, console: Console, pool: str
) -> Callable[[], int]:
    """Open the account before the job starts; return what gives a pool's nodes back."""
    from megatron_eks.ops.aws import scale, session, tools  # noqa: PLC0415 -- boto3, seldom needed

    try:
        opened = tools.open_tools(given.cluster, today(), console, os.environ)
        scale.node_group(pool, opened)
    except session.ERRORS as error:
        raise session.explained(error) from error

    def release() -> int:
        try:
            return scale.release(pool, opened, access.client)
        except session.ERRORS as error:
            console.say(f"the nodes of {pool} still run: meks scale {pool} 0 --when-idle")
            raise session.explained(error) from error

    return release
