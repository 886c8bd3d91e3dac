"""Entry point of `meks dev`: the Job whose pod somebody works in, as one line of JSON.

python -m megatron_eks.charts.training.dev_job JOB GPUS HOURS IDLE_MINUTES
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from megatron_eks import DEFAULT_CLUSTER, node
from megatron_eks.catalog.program_places import ZIP
from megatron_eks.config.errors import ConfigError, has_errors
from megatron_eks.config.messages import messages
from megatron_eks.guards.check import check_manifests
from megatron_eks.plan.jobs.dev import plan_dev
from megatron_eks.project import ROOT, Project, load_project
from megatron_eks.shipping import programs

if __name__ == "__main__":
    # jsii starts Node on import, so this comes first; tests import `objects` alone.
    node.use_bundled_node()

import cdk8s

from megatron_eks.charts.training.batch_job import PlannedJob


def objects(
    project: Project, name: str, gpus: int, hours: float, idle_minutes: float
) -> Sequence[dict[str, Any]]:
    """Return the Job of a job of the project, and what its pod mounts."""
    job = next(each for each in project.jobs if each.name == name)
    zipped, times = {ZIP: programs(ROOT)}, {"hours": hours, "idle_minutes": idle_minutes}
    plan = plan_dev(job, project.cluster, zipped, gpus=gpus, **times)
    platform = project.cluster.platform
    if job.pool:
        # Without a GPU it runs elsewhere, and sees the same files.
        platform = replace(platform, claim=platform.claim_in(job.pool.zone))
    chart = PlannedJob(cdk8s.App(), plan.name, job=plan, platform=platform)
    found: Sequence[dict[str, Any]] = chart.to_json()
    return found


if __name__ == "__main__":
    cluster_file = Path(os.environ.get("CLUSTER_CONFIG") or DEFAULT_CLUSTER)
    try:
        loaded = load_project(cluster_file, datetime.now(tz=UTC).date(), code=True)
    except ConfigError as error:
        sys.stderr.write(messages(error.findings, sys.stderr))
        sys.exit(2)
    _, wanted, number, *times = sys.argv
    made = objects(loaded, wanted, int(number), *map(float, times))
    findings = check_manifests(made)
    sys.stderr.write(messages(findings, sys.stderr))
    sys.stdout.write(json.dumps(made) + "\n")
    sys.exit(2 * has_errors(findings))
