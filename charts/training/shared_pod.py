"""Entry point of `meks`: the pod that reaches the shared file system, as one line of JSON.

python -m megatron_eks.charts.training.shared_pod CLAIM PROGRAM [ARGUMENT...]

It is what a job's pod is, alone: nothing else defines volumes, user and limits a second time.
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
from megatron_eks.config.outputs import PREVIEW_ANNOTATION
from megatron_eks.plan.jobs.pods import plan_shared
from megatron_eks.project import Project, load_project

if __name__ == "__main__":
    # jsii starts Node on import, so this comes first; tests import `pod` alone.
    node.use_bundled_node()

from megatron_eks.charts.training.pod import job_pod


def pod(project: Project, claim: str, program: str, args: Sequence[str]) -> dict[str, Any]:
    """Return the pod without a name of its own, which who creates it adds."""
    job = plan_shared(project.cluster, project.outputs.images, program, args)
    platform = replace(project.cluster.platform, claim=claim)
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
    _, wanted, name, *words = sys.argv
    sys.stdout.write(json.dumps(pod(found, wanted, name, words)) + "\n")
