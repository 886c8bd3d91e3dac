"""Kueue's controller: it holds each job back until all of its pods have a place, then lets it go.

Its settings are upstream's own (kubernetes-sigs/kueue v0.19.2, config) but for what a comment says.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from cdk8s_plus_27 import k8s

from megatron_eks.catalog import kueue
from megatron_eks.catalog.workloads import WorkloadKind
from megatron_eks.charts.platform.job_controller import Review, Settings
from megatron_eks.charts.platform.operator_access import READ, rule
from megatron_eks.plan.cluster.platform import PlatformPlan
from megatron_eks.plan.cluster.queues import READY_SECONDS

SETTINGS_FILE = "configuration.json"

_DIRECTORY = "/etc/kueue"
_METRICS_PORT = 8443
_REVIEWS = (("authentication", "tokenreviews"), ("authorization", "subjectaccessreviews"))
_WRITTEN = ["CREATE", "UPDATE"]
_FINALIZERS, _STATUS = "finalizers", "status"
# They would need rights and kinds that nothing here uses: other clusters, a server for `kubectl`
# of Kueue's own, devices claimed by name, and jobs that grow while they run.
_OFF = (
    "MultiKueue",
    "VisibilityOnDemand",
    "ElasticJobsViaWorkloadSlices",
    *(f"KueueDRAIntegration{e}" for e in ("", "ExtendedResource", "PartitionableDevices")),
)


def kueue_controller(platform: PlatformPlan) -> Settings:
    """Return the controller's settings; it is asked about the kinds of jobs that run here alone."""
    kinds = platform.queued
    completes, checks = (
        [_of_job(each, verb, operations, platform.namespaces) for each in kinds]
        for verb, operations in (("m", ["CREATE"]), ("v", _WRITTEN))
    )
    return Settings(
        kind=kueue.WORKLOAD,
        # The defaults (apis/config/v1beta2/defaults.go).
        service=kueue.SERVICE,
        completes=[
            # Of Workloads too it would be asked, and adds nothing while PartialAdmission is on.
            *(_own(kind, "m", ["CREATE"]) for kind in ("ClusterQueue", "ResourceFlavor")),
            *completes,
        ],
        checks=[
            *checks,
            *(_own(kind, "v", _WRITTEN) for kind in ("ClusterQueue", "Cohort")),
            _own("ResourceFlavor", "v", _WRITTEN),
            # For a TrainJob it asks a dozen times what the API server would make of a Workload.
            replace(_own("Workload", "v", _WRITTEN), conditions=_KEPT),
            Review("vworkloadstatus.kb.io", "workloads/status", ["UPDATE"], "workload"),
        ],
        args=[f"--config={_DIRECTORY}/{SETTINGS_FILE}", "--zap-log-level=info"],
        files={SETTINGS_FILE: json.dumps(_settings(platform), indent=1) + "\n"},
        directory=_DIRECTORY,
        scraped=[_METRICS_PORT] if platform.observed else [],
        in_cluster=[
            # It sees what it watches, and counts on each node what runs there.
            rule("", ["limitranges", "namespaces", "nodes", "pods"], *READ),
            rule("node.k8s.io", ["runtimeclasses"], *READ),
            rule("scheduling.k8s.io", ["priorityclasses"], *READ),
            rule(kueue.GROUP, [*kueue.KINDS.values()], *READ),
            rule(kueue.GROUP, [*_CLUSTERS_OWN], "update"),
            rule(kueue.GROUP, [f"{e}/{_FINALIZERS}" for e in _CLUSTERS_OWN], "update"),
            rule(kueue.GROUP, [f"{e}/{_STATUS}" for e in _WITH_STATUS], "update", "patch"),
            *(rule(e.group, [e.plural], *READ) for e in kinds),
            *(
                rule(e.group, [f"{e.runtime.lower()}s", f"cluster{e.runtime.lower()}s"], *READ)
                for e in kinds
                if e.runtime
            ),
            # Of who asks for its metrics it asks whether they may.
            *(
                rule(f"{group}.k8s.io", [kind], "create")
                for group, kind in _REVIEWS
                if platform.observed
            ),
            rule("apiextensions.k8s.io", ["customresourcedefinitions"], *READ),
            rule(
                "apiextensions.k8s.io",
                ["customresourcedefinitions"],
                "update",
                names=[f"{each}.{kueue.GROUP}" for each in _CONVERTED],
            ),
        ],
        in_jobs=[
            rule(kueue.GROUP, ["workloads"], "create", "delete", "update", "patch"),
            rule(kueue.GROUP, ["workloads/finalizers"], "update"),
            rule(kueue.GROUP, ["workloads/status", "localqueues/status"], "update", "patch"),
            # It starts and stops jobs by their `suspend`, and tells pods which node is theirs.
            *(rule(e.group, [e.plural], "update", "patch") for e in kinds),
            *(rule(e.group, [f"{e.plural}/{_FINALIZERS}"], "update") for e in kinds),
            *(rule(e.group, [f"{e.plural}/{_STATUS}"], "update", "patch") for e in kinds),
            rule("", ["pods"], "update", "patch", "delete"),
            rule("", ["pods/status"], "patch"),
            rule("events.k8s.io", ["events"], "create", "patch", "update"),
        ],
    )


_WORKERS = {"Pod": 5} | {
    f"{kind}.{kueue.GROUP}": number
    for kind, number in (("Workload", 10), ("LocalQueue", 5), ("ClusterQueue", 5))
}
_KEPT = [k8s.MatchCondition(name="kept", expression="!has(request.dryRun) || !request.dryRun")]
_CLUSTERS_OWN = ("clusterqueues", "resourceflavors", "topologies", "admissionchecks")
_WITH_STATUS = ("clusterqueues", "cohorts", "admissionchecks")
_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "workloads")


def _of_job(
    kind: WorkloadKind, verb: str, operations: list[str], namespaces: Sequence[str]
) -> Review:
    """Return what is asked about a kind of jobs, and where.

    Elsewhere Jobs do without Kueue: the one that sets up directories comes before it works. So do
    those in no queue, and those that a job in one consists of.
    """
    name = kind.kind.lower()
    asked = f"{verb}{name}.kb.io", kind.plural, operations, name
    label = (kueue.QUEUE_LABEL, "Exists")
    return Review(*asked, label=label, api_version=kind.api_version, within=namespaces)


def _own(kind: str, verb: str, operations: list[str]) -> Review:
    return Review(f"{verb}{kind.lower()}.kb.io", kueue.KINDS[kind], operations, kind.lower())


def _settings(platform: PlatformPlan) -> dict[str, object]:
    seconds = f"{READY_SECONDS}s"
    kinds = [f"{each.kind}.{each.group}" for each in platform.queued]
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": kueue.NAMESPACE,
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": f":{_METRICS_PORT}", "enableClusterQueueResources": True}
        if platform.observed
        else {"bindAddress": "0"},
        "webhook": {"port": 9443},
        # One pod has no need of it.
        "leaderElection": {"leaderElect": False},
        "integrations": {"frameworks": [kueue.FRAMEWORKS[e.kind] for e in platform.queued]},
        # A job whose pods do not all run in time gives its place to others, and tries again.
        "waitForPodsReady": {"timeout": seconds, "recoveryTimeout": seconds},
        # With the default's LessThanInitialShare too, teams take borrowed nodes from each other as
        # their jobs in other pools begin and end (decision 106).
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]},
        # Queues count GPUs and network cards; CPU and memory come in proportion.
        "resources": {"quotaCheckStrategy": "IgnoreUndeclared"},
        "clientConnection": {"qps": 300, "burst": 500},
        # One worker of a kind, the default, would have two hundred jobs wait for each other.
        "controller": {"groupKindConcurrency": _WORKERS | dict.fromkeys(kinds, 5)},
        "featureGates": dict.fromkeys(_OFF, False),
    }
