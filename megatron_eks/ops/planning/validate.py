"""`meks validate`: every finding about cluster and job files."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path

from megatron_eks import DEFAULT_CLUSTER
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.errors import Finding, has_errors
from megatron_eks.config.job import AnyJob, Job
from megatron_eks.ops.output import count, counted, write_findings
from megatron_eks.ops.planning.megatron import Megatron
from megatron_eks.project import check_files, job_files, read_document

_CLUSTER_KEYS = set(ClusterConfig.model_fields) - set(Job.model_fields)


def run(
    files: Sequence[Path],
    cluster: Path,
    output: str,
    today: date,
    check: Callable[[AnyJob], Iterable[Finding]] = lambda _: (),
) -> int:
    """Check the named files, or a whole project; return 2 if anything is an error.

    `check` tells of a job without errors what no file can. Megatron is asked as well.
    """
    clusters = [path for path in files if path == cluster or _is_cluster(path)]
    jobs = [path for path in files if path not in clusters]
    # Job files are checked against their cluster, so its own mistakes are shown with them.
    first, *others = clusters or [cluster]
    jobs = jobs if files else job_files(first)
    with closing(Megatron()) as megatron:

        def ask(job: AnyJob, config: ClusterConfig) -> Iterator[Finding]:
            yield from megatron.findings(job, config)
            yield from check(job)

        findings = list(check_files(first, jobs, today, check=ask, code=True).findings)
    for other in others:
        findings += check_files(other, [], today).findings
    read = ", ".join(str(each) for each in (first, *others))
    write_findings(findings, output, sys.stdout)
    sys.stderr.write(f"{read} and {count(len(jobs), 'job file')}: {counted(findings)}\n")
    if megatron.not_asked:
        sys.stderr.write(f"not asked of Megatron: {megatron.not_asked}\n")
    return 2 if has_errors(findings) else 0


def _is_cluster(path: Path) -> bool:
    """Tell a cluster file from a job file by the keys that only the former has."""
    value = read_document(path).value if path.is_file() else None
    if not isinstance(value, dict):
        return path.parent.name != "jobs"
    told = any(key in _CLUSTER_KEYS for key in value)
    return "kind" not in value and (told or path.name == DEFAULT_CLUSTER)
