"""What a job's record on the shared file system says, for commands that find its pods gone."""

import zlib
from dataclasses import replace

from megatron_eks.config.codes import Code
from megatron_eks.diagnosis.diagnose import Diagnosis
from megatron_eks.kubernetes.client import Client
from megatron_eks.ops.console import Console
from megatron_eks.ops.failure import DONE, FAILED, NOT_FOUND, Failure
from megatron_eks.ops.jobs import diagnosis, matching, waiting
from megatron_eks.ops.jobs.logs import Options
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.programs import Place
from megatron_eks.project import Project

_PROGRAM = "job_logs"
_TAIL = 2000
"""Lines of each rank to explain, where nobody asks for another number."""


def are_needed(client: Client, project: Project, name: str, rank: int | None) -> bool:
    """Say whether a job has ended, or is known by its file alone, and pods of it are gone."""
    job = jobs.find(client, project.cluster.platform.namespace, name)
    if job is None:
        return any(each.name == name for each in project.jobs)
    found = jobs.ranks(job, jobs.pods_of(client, job)) if job.ended else []
    return any(each.pod is None and rank in {None, each.number} for each in found)


def claim_of(project: Project, name: str) -> str:
    """Return the claim on the file system that a job's pods mount."""
    platform = project.cluster.platform
    pool = next((each.pool for each in project.jobs if each.name == name), None)
    return platform.claim_in(pool.zone) if pool else platform.claim


def run(place: Place, project: Project, name: str, options: Options, console: Console) -> int:
    """Print the lines of all ranks."""
    console.say(f"pods of {name} are gone: from its record in {_folder(project, name)}")
    for line in read(place, project, name, options, console):
        if matching.matches(options.pattern, line):
            console.write(f"{line}\n")
    return DONE


def explain(
    place: Place, project: Project, name: str, options: Options, console: Console, *, client: Client
) -> Diagnosis:
    """Explain what became of a job by its record, and by what the cluster still knows."""
    tail = _TAIL if options.tail is None else options.tail
    lines = read(place, project, name, replace(options, tail=tail), console, both=True)
    return diagnosis.of_record(client, project.cluster, name, options, lines)


def read(
    place: Place,
    project: Project,
    name: str,
    options: Options,
    console: Console,
    *,
    both: bool = False,
) -> list[str]:
    """Return the lines, with `both` those before the last restart too, and what was kept of pods.

    Raises Failure if there are none, or if not all of them came.
    """
    chosen = {"rank": options.rank, "tail": options.tail, "since": options.since_seconds}
    words = [f"--{key}={value}" for key, value in chosen.items() if value is not None]
    words += ["--before"] * options.previous or ["--both", "--objects"] * both
    folder = _folder(project, name)
    lines: list[str] = []
    ended = place.run(_PROGRAM, [folder, *words], lines.append)
    if ended.code == NOT_FOUND:
        found = f"{name} has no pods and no record: {'; '.join(ended.names('findings'))}"
        raise Failure(Code.NO_LOGS, found, f"meks status {name}", exit_code=NOT_FOUND)
    # What the program itself says stands among them; the ranks' lines begin with a bracket.
    own = [line for line in lines if line.startswith("[")]
    whole = ended.summary.get("lines") == len(own)
    if ended.code or not whole or ended.summary.get("crc32") != _checksum(own):
        found = f"{len(own)} lines of {ended.summary.get('lines', 'more')} came whole"
        remedy = "narrow it down with --rank or --tail, and try again"
        raise Failure(Code.SAVED_LOG_CUT, found, remedy, exit_code=ended.code or FAILED)
    for finding in ended.names("findings"):
        console.say(finding)
    there, nodes = ended.summary.get("ranks"), _nodes(project, name)
    if isinstance(there, list) and options.rank is None:
        lacking = [number for number in range(nodes) if number not in there]
        if lacking:
            console.say(f"note: {waiting.numbers(lacking)} of {nodes} left no record")
    return own


def _nodes(project: Project, name: str) -> int:
    return next((each.nodes for each in project.jobs if each.name == name), 0)


def _checksum(lines: list[str]) -> int:
    checksum = 0
    for line in lines:
        checksum = zlib.crc32(line.encode(), checksum)
    return checksum


def _folder(project: Project, name: str) -> str:
    return f"{project.cluster.platform.mount_path}/logs/{name}"
