"""Kueue, which holds jobs back until all of their pods have a place: names and labels of 0.19.2."""

from megatron_eks.catalog import pins
from megatron_eks.catalog.workloads import WORKLOADS, WorkloadKind

GROUP = "kueue.x-k8s.io"
API_VERSION = f"{GROUP}/v1beta2"

QUEUE_LABEL, PRIORITY_LABEL = f"{GROUP}/queue-name", f"{GROUP}/priority-class"
"""On a job: the LocalQueue in which it waits, and its WorkloadPriorityClass."""
PREFERRED_ANNOTATION = f"{GROUP}/podset-preferred-topology"
GROUP_ANNOTATION = f"{GROUP}/podset-group-name"
"""On templates of pods: below which part of the network they are wanted, and with whom."""
SLICE_ANNOTATION = f"{GROUP}/podset-slice-required-topology"
SLICE_SIZE_ANNOTATION = f"{GROUP}/podset-slice-size"
"""On templates of pods: below which part each so many of them must be, in their order."""
OFFSET_ANNOTATION = f"{GROUP}/pod-index-offset"
"""On them too: what is added to the number that Kueue expects their first to have."""
NODES_CHECK = "megatron-eks-nodes"
"""The AdmissionCheck that holds a job with a place in its queue until its nodes are there."""
CHECK_CONTROLLER = f"{GROUP}/provisioning-request"
"""Whose it says that it is. Kueue's own needs the cluster autoscaler's kinds, and does not start
without them; for checks of this name alone it chooses places in the network behind them."""
UID_LABEL = f"{GROUP}/job-uid"
"""On a Workload: the uid of its job."""

KINDS = {
    "AdmissionCheck": "admissionchecks",
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "ResourceFlavor": "resourceflavors",
    "Topology": "topologies",
    "Workload": "workloads",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}
"""What it cannot start without; plurals by kind. Those for several clusters and for the cluster
autoscaler are left out, with the features that need them."""

WORKLOAD = WorkloadKind(
    kind="Workload",
    api_version=API_VERSION,
    plural="workloads",
    job_label="",
    index_label="",
    templates=(),
    count="count",
    controller=("kueue-system", "kueue-controller-manager"),
    webhook="kueue-validating-webhook-configuration",
    mutating="kueue-mutating-webhook-configuration",
    certificate="kueue-webhook-server-cert",
    definitions=tuple(KINDS.values()),
    image=pins.KUEUE_IMAGE,
)
"""What Kueue makes of each job in a queue: the job as it is counted, and what became of it."""

NAMESPACE, SERVICE = "kueue-system", "kueue-webhook-service"

FRAMEWORKS = {kind: f"{each.group}/{kind.lower()}" for kind, each in WORKLOADS.items()}
"""What its settings call the kinds of jobs. PyTorchJob is off unless named (decision 99)."""
