"""What `meks logs` and `meks status` read: pods, and the records that outlive them."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from megatron_eks.config.codes import Code
from megatron_eks.diagnosis.diagnose import Diagnosis
from megatron_eks.kubernetes.client import ApiError, Client
from megatron_eks.ops import diagnosis
from megatron_eks.ops.console import Console
from megatron_eks.ops.data.shared_pod import SharedPod
from megatron_eks.ops.failure import DONE, FAILED, INTERRUPTED, NOT_FOUND, Failure
from megatron_eks.ops.jobs import diagnosis as kube_diagnosis
from megatron_eks.ops.jobs import logs, overview, status, status_view, waiting
from megatron_eks.ops.jobs.logs import Options
from megatron_eks.ops.kube import jobs
from megatron_eks.ops.opening import Opened
from megatron_eks.ops.output import formatted
from megatron_eks.ops.programs import Place
from megatron_eks.project import Project

_RECORD_SECONDS = 60.0
"""For the pod that reads a record: the rest of a status is known without it."""


def logs_of(job: str, options: Options, on: Opened, *, output: str, explains: bool) -> int:
    """Print the lines of a job, or what they say of its end."""
    client, project, console = on.client, on.project, on.console
    looks_back = explains or options.previous
    if not options.follow and are_needed(client, project, job, options.rank, back=looks_back):
        record = Record(SharedPod(*on, claim_of(project, job)), project, job, console)
        try:
            if explains:
                return diagnosis.report(record.explain(options, client), output, console)
            return record.show(options)
        except KeyboardInterrupt:
            console.say("\ninterrupted: nothing was changed")
            return INTERRUPTED
    if explains:
        found = kube_diagnosis.of_job(client, project.cluster, job, options)
        return diagnosis.report(found, output, console)
    return logs.run(client, project.cluster, job, options, console)


def see(job: str | None, on: Opened, *, output: str) -> int:
    """Show how a job or the cluster does."""
    client, project, console = on.client, on.project, on.console
    if job is None:
        found = overview.read(client, project.cluster)
        console.write(formatted(output, overview.lines(found), lambda: overview.as_json(found)))
        return DONE

    def record() -> Sequence[str]:
        place = SharedPod(*on, claim_of(project, job), _RECORD_SECONDS)
        try:
            return Record(place, project, job, console).read(Options(), both=True)
        except (Failure, ApiError) as error:
            # A cluster that cannot tell has an end to show too.
            console.say(f"note: the record of {job} cannot be read: {error}")
        return ()

    return status_view.show(status.read(client, project, job, record), output, console)


_PROGRAM = "job_logs"
_TAIL = 2000
"""Lines of each rank to explain, where nobody asks for another number."""


def are_needed(
    client: Client, project: Project, name: str, rank: int | None, *, back: bool = False
) -> bool:
    """Say whether pods are gone: of a job that has ended, or is known by its file alone.

    To look `back` those of a set are needed, of which all before the last restart are gone.
    """
    job = jobs.find(client, project.cluster.platform.namespace, name)
    if job is None:
        return any(each.name == name for each in project.jobs)
    if back and job.restarts:
        return True
    found = jobs.ranks(job, jobs.pods_of(client, job)) if job.ended else []
    return any(each.pod is None and rank in {None, each.number} for each in found)


def claim_of(project: Project, name: str) -> str:
    """Return the claim on the file system that a job's pods mount."""
    platform = project.cluster.platform
    pool = next((each.pool for each in project.jobs if each.name == name), None)
    return platform.claim_in(pool.zone) if pool else platform.claim


@dataclass(frozen=True)
class Record:
    """What a job's ranks have printed, kept on the file system, and where it is read."""

    place: Place
    project: Project
    name: str
    console: Console

    @property
    def folder(self) -> str:
        """Where it is."""
        return f"{self.project.cluster.platform.mount_path}/logs/{self.name}"

    def show(self, options: Options) -> int:
        """Print the lines of all ranks."""
        self.console.say(f"no pods of {self.name}: reading its record in {self.folder}")
        for line in self.read(options):
            self.console.write(f"{line}\n")
        return DONE

    def explain(self, options: Options, client: Client) -> Diagnosis:
        """Explain what became of the job by it, and by what the cluster still knows."""
        tail = _TAIL if options.tail is None else options.tail
        lines = self.read(replace(options, tail=tail), both=True)
        return kube_diagnosis.of_record(client, self.project.cluster, self.name, options, lines)

    def read(self, options: Options, *, both: bool = False) -> list[str]:
        """Return the lines; `both`: also those before the last restart, and what is kept of pods.

        Raises Failure if there are none, or if not all of them came.
        """
        chosen = {"rank": options.rank, "tail": options.tail, "since": options.since_seconds}
        words = [f"--{key}={value}" for key, value in chosen.items() if value is not None]
        words += ["--before"] * options.previous or ["--both", "--objects"] * both
        return self.told(words)

    def told(self, words: Sequence[str]) -> list[str]:
        """Return what job_logs prints of it. Raises Failure if there is none, or it came cut."""
        lines: list[str] = []
        ended, name = self.place.run(_PROGRAM, [self.folder, *words], lines.append), self.name
        if ended.code == NOT_FOUND:
            found = f"{name} has no pods and no record: {'; '.join(ended.names('findings'))}"
            remedy = f"start it, if it has not run yet: meks submit {name}; or: meks status {name}"
            raise Failure(Code.NO_LOGS, found, remedy, exit_code=NOT_FOUND)
        # What the program itself says stands among them; the ranks' lines begin with a bracket.
        own = [line for line in lines if line.startswith("[")]
        sums = {"lines": len(own), "crc32": zlib.crc32("".join(own).encode())}
        if ended.code or any(ended.summary.get(key) != value for key, value in sums.items()):
            found = f"{len(own)} lines of {ended.summary.get('lines', 'more')} came whole"
            remedy = "narrow it down with --rank or --tail, and try again"
            raise Failure(Code.SAVED_LOG_CUT, found, remedy, exit_code=ended.code or FAILED)
        for finding in ended.names("findings"):
            self.console.say(finding)
        there = ended.summary.get("ranks")
        nodes = next((each.nodes for each in self.project.jobs if each.name == name), 0)
        if isinstance(there, list) and not any(each.startswith("--rank") for each in words):
            lacking = [number for number in range(nodes) if number not in there]
            if lacking:
                self.console.say(f"note: {waiting.numbers(lacking)} of {nodes} left no record")
        return own
