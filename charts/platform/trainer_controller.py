"""The controller of TrainJobs, Kubeflow Trainer: it turns each into the JobSet of its runtime.

Its settings are upstream's own (kubeflow/trainer v2.3.0, manifests), but for leader election, of
which one pod has no need: without a file of settings there is none.
"""

from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.platform.job_controller import Review, Settings
from megatron_eks.charts.platform.operator_access import READ, rule
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.jobs.job import JOB_LABEL

_KIND, _SETS = WORKLOADS["TrainJob"], WORKLOADS["JobSet"]
_WRITTEN = ["CREATE", "UPDATE"]
_OF_OTHERS = (JOB_LABEL, "DoesNotExist")


def trainer(_: PlatformPlan) -> Settings:
    """Return the controller's settings, with the kinds of runtimes that it cannot start without."""
    name = "trainjob.trainer.kubeflow.org"
    return Settings(
        kind=_KIND,
        # Compiled in (main.go), or its defaults (pkg/apis/config/v1alpha1).
        service="kubeflow-trainer-controller-manager",
        completes=[Review(f"defaulter.{name}", _KIND.plural, _WRITTEN, "trainjob")],
        checks=[
            # It refuses a job whose runtime it does not know yet: ours come with theirs, in
            # one file, and a dry run makes neither.
            Review(f"validator.{name}", _KIND.plural, _WRITTEN, "trainjob", _OF_OTHERS),
            *(
                Review(f"validator.{each}.{_KIND.group}", f"{each}s", _WRITTEN, each)
                for each in ("trainingruntime", "clustertrainingruntime")
            ),
        ],
        args=["--zap-log-level=info"],
        in_cluster=[
            rule(_KIND.group, [*_KIND.definitions], *READ),
            rule(_SETS.group, [_SETS.plural], *READ),
            # Its plugins for MPI and Flux watch both, whether a job uses them or not, and
            # without that it ends (pkg/runtime/framework/plugins).
            rule("", ["configmaps", "secrets"], *READ),
        ],
        in_jobs=[
            rule(_KIND.group, [f"{_KIND.plural}/status"], "patch"),
            rule(_KIND.group, [f"{_KIND.plural}/finalizers"], "update"),
            # It applies what it makes; `delete` is for jobs that take too long.
            rule(_SETS.group, [_SETS.plural], "create", "patch", "delete"),
            # A copy of the runtime as it was at the job's start.
            rule("", ["configmaps"], "create", "patch"),
            rule("events.k8s.io", ["events"], "create", "patch"),
        ],
    )
