"""The charts for cdk8s apps of others: from a cluster and a job as dictionaries or models.

A wrong value raises ConfigError, with every finding.
"""

import cdk8s
from constructs import Construct

from megatron_eks.charts.composition import Charts, build_platform
from megatron_eks.charts.training.batch_job import PlannedJob
from megatron_eks.config.cluster import ClusterConfig
from megatron_eks.config.job import AnyJob
from megatron_eks.library import Values, plan_project

__all__ = ["TrainingJob", "add_platform"]


def add_platform(
    scope: cdk8s.App, *, cluster: Values | ClusterConfig, outputs: Values | None = None
) -> Charts:
    """Add what runs in a cluster before any job, and return the charts by id.

    `outputs` is what `cdk deploy --outputs-file` writes: ids of file systems, URIs of images.
    Without it there are placeholders, and what holds one has the annotation `megatron-eks/preview`.
    """
    project = plan_project(cluster, outputs=outputs)
    return build_platform(scope, project.cluster, project.outputs)


class TrainingJob(PlannedJob):
    """A job of any kind, as a PyTorchJob or Job with what belongs to it."""

    def __init__(
        self,
        scope: Construct,
        chart_id: str,
        *,
        job: Values | AnyJob,
        cluster: Values | ClusterConfig,
        outputs: Values | None = None,
    ) -> None:
        """Render a job file's contents for a cluster file's, with outputs as above."""
        project = plan_project(cluster, jobs=[job], outputs=outputs)
        super().__init__(scope, chart_id, job=project.jobs[0], platform=project.cluster.platform)
