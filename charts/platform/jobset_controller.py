"""The controller of JobSets: it turns each into a Job and a Service, and restarts all of its ranks.

Its settings are upstream's own (kubernetes-sigs/jobset v0.12.0, config/components), but for leader
election, of which one pod has no need, and metrics, which nobody reads.
"""

from megatron_eks.catalog.workloads import WORKLOADS
from megatron_eks.charts.platform.job_controller import Review, Settings
from megatron_eks.charts.platform.operator_access import READ, rule
from megatron_eks.plan.cluster.platform import PlatformPlan

_KIND = WORKLOADS["JobSet"]


def jobset_controller(_: PlatformPlan) -> Settings:
    """Return the controller's settings; its webhooks are asked about JobSets alone.

    Upstream's also ask about pods, which they change only for a kind of placement that nothing
    here uses: without them a controller that is down keeps no pod from starting again.
    """
    return Settings(
        kind=_KIND,
        # Compiled into the controller (pkg/util/cert/cert.go), or its defaults
        # (api/config/v1alpha1).
        service="jobset-webhook-service",
        completes=[Review("mjobset.kb.io", _KIND.plural, ["CREATE"], "jobset")],
        checks=[Review("vjobset.kb.io", _KIND.plural, ["CREATE", "UPDATE"], "jobset")],
        args=["--leader-elect=false", "--metrics-bind-address=0", "--zap-devel=false"],
        # It sees what it watches: it knows no namespace of its own to look in.
        in_cluster=[
            rule(_KIND.group, [_KIND.plural], *READ),
            rule("batch", ["jobs"], *READ),
            rule("", ["pods", "services", "nodes", "persistentvolumeclaims"], *READ),
        ],
        in_jobs=[
            # `delete` ends a job's time to live; setting owners asks for the finalizers.
            rule(_KIND.group, [_KIND.plural], "delete"),
            rule(_KIND.group, [f"{_KIND.plural}/status"], "update"),
            rule(_KIND.group, [f"{_KIND.plural}/finalizers"], "update"),
            # `update` and `patch` suspend and resume; a Job that has started forgets when, by
            # `status`.
            rule("batch", ["jobs"], "create", "delete", "update", "patch"),
            rule("batch", ["jobs/status"], "update"),
            rule("", ["services", "persistentvolumeclaims"], "create"),
            rule("events.k8s.io", ["events"], "create", "patch"),
        ],
    )
