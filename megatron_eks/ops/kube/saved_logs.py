"""`meks logs` when the pods are gone: the copies of the ranks' logs on the shared file system."""

import zlib

from megatron_eks.config.codes import Code
from megatron_eks.diagnosis.diagnose import Diagnosis, diagnose
from megatron_eks.kubernetes.client import Client
from megatron_eks.ops.aws.console import Console
from megatron_eks.ops.endings import DONE, FAILED, NOT_FOUND
from megatron_eks.ops.failure import Failure
from megatron_eks.ops.kube import jobs, matching
from megatron_eks.ops.kube.logs import Options
from megatron_eks.ops.programs import Place
from megatron_eks.project import Project

_PROGRAM = "job_logs"
_TAIL = 2000
"""Lines of each rank to explain, where nobody asks for another number."""


def are_needed(client: Client, project: Project, name: str) -> bool:
    """Say whether a job that is known here has no pod any more whose log could be read."""
    job = jobs.find(client, project.cluster.platform.namespace, name)
    if job is not None:
        return not jobs.pods_of(client, job)
    return any(each.name == name for each in project.jobs)


def claim_of(project: Project, name: str) -> str:
    """Return the claim on the file system that a job's pods mount."""
    platform = project.cluster.platform
    pool = next((each.pool for each in project.jobs if each.name == name), None)
    return platform.claim_in(pool.zone) if pool else platform.claim


def run(place: Place, project: Project, name: str, options: Options, console: Console) -> int:
    """Print the lines of all ranks, each rank a process of torchrun."""
    console.say(f"{name} has no pods: from {_folder(project, name)}, where a rank is a process")
    for line in _read(place, project, name, options, console):
        if matching.matches(options.pattern, line):
            console.write(f"{line}\n")
    return DONE


def explain(
    place: Place, project: Project, name: str, options: Options, console: Console
) -> Diagnosis:
    """Explain what became of a job by its copied logs alone: pods and events are gone."""
    tail = _TAIL if options.tail is None else options.tail
    wanted = Options(rank=options.rank, tail=tail, since_seconds=options.since_seconds)
    return diagnose(_read(place, project, name, wanted, console))


def _read(
    place: Place, project: Project, name: str, options: Options, console: Console
) -> list[str]:
    """Return the lines; raise Failure if there are none, or if not all of them came."""
    chosen = {"rank": options.rank, "tail": options.tail, "since": options.since_seconds}
    words = [f"--{key}={value}" for key, value in chosen.items() if value is not None]
    folder = _folder(project, name)
    lines: list[str] = []
    ended = place.run(_PROGRAM, [folder, *words], lines.append)
    findings = ended.names("findings")
    if ended.code == NOT_FOUND:
        found = f"{name} has no pods, and there are no logs of it in {folder}"
        remedy = "only Megatron's jobs are copied; see meks status, and meks logs NAME --previous"
        raise Failure(Code.NO_LOGS, found, remedy, exit_code=NOT_FOUND)
    # What the program itself says stands among them; the ranks' lines begin with a bracket.
    own = [line for line in lines if line.startswith("[")]
    whole = ended.summary.get("lines") == len(own)
    if ended.code or not whole or ended.summary.get("crc32") != _checksum(own):
        found = f"{len(own)} lines of {ended.summary.get('lines', 'more')} came whole"
        remedy = "narrow it down with --rank or --tail, and try again"
        raise Failure(Code.SAVED_LOG_CUT, found, remedy, exit_code=ended.code or FAILED)
    for finding in findings:
        console.say(finding)
    return own


def _checksum(lines: list[str]) -> int:
    checksum = 0
    for line in lines:
        checksum = zlib.crc32(line.encode(), checksum)
    return checksum


def _folder(project: Project, name: str) -> str:
    return f"{project.cluster.platform.mount_path}/logs/{name}"
