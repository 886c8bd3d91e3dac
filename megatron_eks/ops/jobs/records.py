"""What `meks logs` and `meks status` read: pods, and the records that outlive them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from megatron_eks.kubernetes.client import ApiError
from megatron_eks.ops import diagnosis
from megatron_eks.ops.console import Console
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import INTERRUPTED, Failure
from megatron_eks.ops.jobs import diagnosis as kube_diagnosis
from megatron_eks.ops.jobs import (
    logs,
    overview,
    overview_view,
    saved_logs,
    status,
    status_view,
    watching,
)
from megatron_eks.ops.kube.access import Access
from megatron_eks.ops.opening import Opened
from megatron_eks.project import Project

_RECORD_SECONDS = 60.0
"""For the pod that reads a record: the rest of a status is known without it."""


def logs_of(
    file: Path,
    job: str,
    options: logs.Options,
    on: Opened,
    *,
    output: str,
    explains: bool,
) -> int:
    """Print the lines of a job, or what they say of its end; `file` is the cluster's."""
    access, project, console = on
    client = on.client
    if not options.follow and saved_logs.are_needed(client, project, job, options.rank):
        claim = saved_logs.claim_of(project, job)
        place = SharedPod(access, project, file, console, claim)
        words = place, project, job, options, console
        try:
            if explains:
                found = saved_logs.explain(*words, client=client)
                return diagnosis.report(found, output, console)
            return saved_logs.run(*words)
        except KeyboardInterrupt:
            console.say("\ninterrupted: nothing was changed")
            return INTERRUPTED
    if explains:
        found = kube_diagnosis.of_job(client, project.cluster, job, options)
        return diagnosis.report(found, output, console)
    return logs.run(client, project.cluster, job, options, console)


def see(
    file: Path,
    job: str | None,
    on: Opened,
    *,
    output: str,
    interval: float | None,
    nodes: bool,
) -> int:
    """Show how a job or the cluster does, once or every `interval` seconds."""
    access, project, console = on
    client = on.client

    @cache
    def record() -> Sequence[str]:
        return _record(file, str(job), access, project, console)

    def look() -> watching.View:
        if job is None:
            return overview_view.view(overview.read(client, project.cluster, nodes=nodes))
        read = status.read(client, project, job, nodes=nodes, record=record)
        return status_view.view(read)

    again = f"meks status {f'{job} ' if job else ''}{'--nodes ' * nodes}--watch"
    return watching.show(client, look, watching.Options(output, interval, again), console)


def _record(
    file: Path, job: str, access: Access, project: Project, console: Console
) -> Sequence[str]:
    """Read what a job's ranks have printed; a cluster that cannot tell has an end to show too."""
    claim = saved_logs.claim_of(project, job)
    place = SharedPod(access, project, file, console, claim, _RECORD_SECONDS)
    try:
        return saved_logs.read(place, project, job, logs.Options(), console, both=True)
    except Failure as failure:
        console.say(f"note: {failure}")
    except ApiError as error:
        console.say(f"note: the record of {job} cannot be read: {error}")
    return ()
