"""`meks submit`: starts a job once, whatever happens to the command, and says what it waits for."""

import json
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus

from megatron_eks.catalog.workloads import whole
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Path, dotted
from megatron_eks.config.load import Json
from megatron_eks.kubernetes.client import ApiError, Client, Object
from megatron_eks.ops.cluster.apply import refuse_unfit
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import CHECK_FAILED, DONE, FAILED, INTERRUPTED, Failure
from megatron_eks.ops.jobs import alarms, fit, logs, resume, submission
from megatron_eks.ops.jobs.look import look
from megatron_eks.ops.jobs.rendering import HASH_ANNOTATION, JOB_ANNOTATION, Rendered, Wish, render
from megatron_eks.ops.jobs.status import ranks_of, summary, watched
from megatron_eks.ops.kube import jobs, objects
from megatron_eks.ops.kube.jobs import RunningJob
from megatron_eks.ops.kube.teams import of_team
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.planning.megatron import Megatron
from megatron_eks.project import Project

# Kueue v0.19.2, trainjob_controller.go, and Trainer v2.3.0, pkg/runtime.
_UNSEEN = re.compile(r"runtime '[^']*' not found|must be created before the TrainJob")
_UNSEEN_SECONDS = (0.1, 0.2, 0.5, 1, 2, 4)


@dataclass(frozen=True)
class Options:
    """What the user asked for besides the job."""

    follow: bool = False
    wait: bool = False
    previews: bool = False
    wait_seconds: float = 14 * 24 * 3600
    command: tuple[str, ...] = ("meks", "submit")
    """What was typed, to be shown where it is to be typed again."""


def run(wish: Wish, options: Options, on: Opened) -> int:
    """Create a job that is not there yet; follow it or wait for it if asked to."""
    client, project, console = on.client, on.project, on.console
    with closing(Megatron()) as megatron:
        rendered = render(wish, megatron)
    if megatron.not_asked:
        console.say(f"not asked of Megatron: {megatron.not_asked}")
    console.report(rendered.warnings)
    project = of_team(project, rendered.job.team)
    created = [*rendered.beside, rendered.workload]
    refuse_unfit(created, on.access, project, previews=options.previews)
    for each in created:
        objects.find_own(client, each, project.cluster.name)
    metadata = rendered.workload["metadata"]
    found = jobs.find(client, metadata["namespace"], metadata["name"])
    if found is None:
        role = project.outputs.job_role
        if missing := submission.out_of_reach(on, role, rendered.access) if role else ():
            text = f"the deployed role of the jobs does not reach {', '.join(missing)}"
            remedy = "put the job file in jobs/, then run: meks deploy Storage"
            raise Failure(Code.JOB_ROLE, text, remedy)
        resume.compare(project.cluster, rendered.job, on)
        look_ahead(client, project, rendered.planned, console)
        fit.ease(client, created, console)
        submission.send(on, rendered.shipped)
        found = create(client, rendered.beside, rendered.workload)
        resume.remember(client, project.cluster, rendered.job)
    if found.manifest["metadata"].get("annotations", {}).get(HASH_ANNOTATION) != rendered.hash:
        raise _differs(found, rendered, options)
    if "deletionTimestamp" in found.manifest["metadata"]:
        message = f"{found.name} is being deleted"
        remedy = f"wait for that: meks cancel {found.name}, then the same command again"
        raise Failure(Code.JOB_DIFFERS, message, remedy)
    console.say(summary(found, ranks_of(client, found)))
    if not (options.follow or options.wait):
        console.say(
            f"to run it again: meks cancel {found.name} && {shlex.join(options.command)}"
            if found.ended
            else f"see it: meks status {found.name}; meks logs {found.name} --follow"
        )
        return DONE
    return _stay(client, found, options, console)


def look_ahead(client: Client, project: Project, workload: Object, console: Console) -> None:
    """Say what the job will wait for; refuse it where waiting does not help."""
    found = fit.obstacles(client, project.cluster, workload, project.jobs)
    final = [each for each in found if each.is_final]
    if final:
        message = "; ".join(each.found for each in final)
        remedy = "; ".join(dict.fromkeys(each.remedy for each in final))
        raise Failure(Code.PLATFORM_MISSING, message, remedy)
    for each in found:
        console.say(f"it will wait: {each}")


def create(client: Client, beside: Iterable[Object], workload: Object) -> RunningJob:
    """Create a job and what its pods mount; one that is there already is returned as it is."""
    for each in beside:
        client.apply(each)
    try:
        return RunningJob(whole(_created(client, workload), beside))
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        # Somebody else was quicker: whether it is the same job, the caller compares.
        metadata = workload["metadata"]
        return jobs.get(client, metadata["namespace"], metadata["name"])


def _created(client: Client, workload: Object) -> Object:
    """Create a job whose runtime the controllers may not know of yet: their webhooks ask caches."""
    for pause in _UNSEEN_SECONDS:
        try:
            return client.create(workload)
        except ApiError as error:
            if not _UNSEEN.search(str(error)):
                raise
        time.sleep(pause)
    return client.create(workload)


def _differs(found: RunningJob, rendered: Rendered, options: Options) -> Failure:
    """Say in the keys of the job file what is not as it was submitted."""
    annotations = (
        each["metadata"].get("annotations") or {} for each in (found.manifest, rendered.workload)
    )
    written = [json.loads(each.get(JOB_ANNOTATION, "{}")) for each in annotations]
    before, after = ({dotted(key): value for key, value in _flat(each)} for each in written)
    changed = [
        # Values of a job's own variables stay out of a message that ends in logs.
        key
        if key.startswith("runtime.env.")
        else f"{key}: {_shown(before, key)} -> {_shown(after, key)}"
        for key in dict.fromkeys([*before, *after])
        if before and before.get(key) != after.get(key)
    ]
    if not changed:
        changed = ["not by its own file: by the cluster's, an image, or this version"]
    again = shlex.join(options.command)
    message = f"{found.name} is there already, with another specification: {'; '.join(changed)}"
    remedy = f"leave it, or replace it: meks cancel {found.name} && {again}"
    return Failure(Code.JOB_DIFFERS, message, remedy)


def _flat(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _flat(inner, (*path, key))


def _shown(values: Mapping[str, Json], key: str) -> str:
    return json.dumps(values[key]) if key in values else "not set"


def _stay(client: Client, job: RunningJob, options: Options, console: Console) -> int:
    try:
        if options.follow and not job.ended:
            wait(client, job, options.wait_seconds, console, until_running=True)
            ranks = [rank.number for rank in ranks_of(client, job)]
            logs.follow(client, job, ranks, logs.Options(), console)
        return wait(client, job, options.wait_seconds, console, until_running=False)
    except KeyboardInterrupt:
        again = f"to look again: meks logs {job.name} --follow; to end it: meks cancel {job.name}"
        console.say(f"\nthe job goes on; {again}")
        return INTERRUPTED


def wait(
    client: Client, job: RunningJob, seconds: float, console: Console, *, until_running: bool
) -> int:
    """Say each change of a job until it runs, or has ended; return the exit code of its end."""
    ended = ""

    def done(now: RunningJob | None, lines: Sequence[str]) -> bool:
        nonlocal ended
        if now is None or now.uid != job.uid:
            message, remedy = f"{job.name} is gone", f"start it again: meks submit {job.name}"
            raise Failure(Code.JOB_NOT_FOUND, message, remedy)
        ended = now.ended
        return bool(ended) or (until_running and lines[0].startswith(f"{job.name}: Running"))

    if not watched(client, job, seconds, console, done):
        message = f"{job.name} has not come to an end in that time"
        raise Failure(Code.NOT_READY, message, f"it goes on; see: meks status {job.name}")
    if ended == "Failed":
        console.say(f"see why: meks logs {job.name} --explain")
        return FAILED
    copied = alarms.copies(look(client, job.namespace, job.name)) if ended else None
    if copied is not None and copied.state != "whole":
        console.say(f"{job.name}: copies {copied.state}: {copied.text}")
        console.say(f"once that is repaired: meks ckpt push {job.name}")
        return CHECK_FAILED
    return DONE
