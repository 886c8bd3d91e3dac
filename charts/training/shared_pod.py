"""Entry point of `meks`: the pod that reaches the shared file system, as one line of JSON.

python -m megatron_eks.charts.training.shared_pod CLAIM IMAGE PROGRAM [ARGUMENT...]

It is what a job's pod is, alone: nothing else defines volumes, user and limits a second time. Where
IMAGE is not empty, it is the user's, and the ConfigMap with our programs comes behind the pod.
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
from megatron_eks.config.outputs import PREVIEW_ANNOTATION
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.pods import TEAM, plan_shared
from megatron_eks.project import ROOT, Project, load_project
from megatron_eks.shipping import programs

if __name__ == "__main__":
    # jsii starts Node on import, so this comes first; tests import `pod` alone.
    node.use_bundled_node()

import cdk8s

from megatron_eks.charts.training.objects import config_map
from megatron_eks.charts.training.pod import job_pod


def objects(
    project: Project, claim: str, own: str, program: str, args: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the pod, and what it mounts, without names of their own, which their creator adds."""
    job = plan_shared(project.cluster, project.outputs.images, program, args, own)
    platform = replace(project.cluster.platform, claim=claim)
    if not own:
        return [_pod(job, platform)]
    job = replace(job, files={ZIP: programs(ROOT)})
    chart = cdk8s.Chart(cdk8s.App(), job.name)
    config_map(chart, job, platform)
    return [_pod(job, platform), *chart.to_json()]


def _pod(job: JobPlan, platform: PlatformPlan) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": job.name,
            "namespace": platform.namespace,
            "labels": {"app": job.app},
            "annotations": {PREVIEW_ANNOTATION: "true"} if job.image.preview else {},
        },
        "spec": {
            **job_pod(job, platform),
            "restartPolicy": "Never",
            "activeDeadlineSeconds": job.deadline_seconds,
        },
    }


if __name__ == "__main__":
    cluster_file = Path(os.environ.get("CLUSTER_CONFIG") or DEFAULT_CLUSTER)
    found = load_project(cluster_file, datetime.now(tz=UTC).date(), makes=False)
    found = replace(found, cluster=found.cluster.of_team(os.environ.get(TEAM) or None))
    _, wanted, own_image, name, *words = sys.argv
    sys.stdout.write(json.dumps(objects(found, wanted, own_image, name, words)) + "\n")
