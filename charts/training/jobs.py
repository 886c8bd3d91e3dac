"""The chart of any job: its files, and the resource that runs its pods."""

from collections.abc import Callable, Mapping

import cdk8s
from constructs import Construct

from charts.training.batch_job import add_indexed_job, add_job
from charts.training.files import config_map
from charts.training.pytorchjob import add_pytorch_job
from megatron_eks.plan.job import JobPlan, Workload
from megatron_eks.plan.platform import PlatformPlan

_WORKLOADS: Mapping[Workload, Callable[[Construct, JobPlan, PlatformPlan], None]] = {
    "pytorch_job": add_pytorch_job,
    "indexed_job": add_indexed_job,
    "job": add_job,
}


class TrainingJob(cdk8s.Chart):
    """One job, alone in its file."""

    def __init__(
        self, scope: Construct, chart_id: str, *, job: JobPlan, platform: PlatformPlan
    ) -> None:
        super().__init__(scope, chart_id, disable_resource_name_hashes=True)
        config_map(self, job, platform)
        _WORKLOADS[job.workload](self, job, platform)
