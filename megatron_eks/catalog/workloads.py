"""The kinds of Kubernetes objects that run the pods of a job."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from megatron_eks.catalog import pins


@dataclass(frozen=True)
class WorkloadKind:
    """One kind: what it is called, and what its pods are found by."""

    kind: str
    api_version: str
    plural: str
    job_label: str
    """On each pod: the name of its job."""
    index_label: str
    """On each pod: its number."""
    templates: tuple[str, ...]
    """Where below `spec` that stands which has a pod template; `*` for each of several."""
    count: str
    """Beside the template: how many pods it is for."""
    controller: tuple[str, str] | None = None
    """Namespace and Deployment of what makes the pods; None: Kubernetes itself."""
    webhook: str = ""
    """The ValidatingWebhookConfiguration by which the controller refuses mistaken jobs."""
    mutating: str = ""
    """The MutatingWebhookConfiguration by which it completes them."""
    certificate: str = ""
    """The Secret with the certificate of both."""
    definitions: tuple[str, ...] = ()
    """Plurals of the kinds that come with the controller."""
    uid_label: str | None = None
    """On each pod: the uid of its job, where another object is between them."""
    runtime: str | None = None
    """The kind of what stands beside it, under its name, and has its pod templates."""
    makes: str | None = None
    """The kind of what it becomes, under its name; that one's controller is needed too."""
    image: str = ""
    """Of its controller."""
    last_pod: str = "{name}-worker-{worker}"
    """The longest name that is made for the ranks of a job: a Service's, or a pod's."""
    fixed: bool = False
    """Whether it has as many ranks as at its start, and starts all of them again."""

    @property
    def group(self) -> str:
        """Return the API group."""
        return self.api_version.partition("/")[0]


Workload = Literal["pytorchjob", "jobset", "trainjob"]
"""What a file may choose to run the ranks of a job: kinds as it writes them."""
AnyWorkload = Workload | Literal["job"]

SET_RANKS = "node"
"""The part of a JobSet that ranks are."""

_INDEX = "batch.kubernetes.io/job-completion-index"
_UID_OF_SET = "jobset.sigs.k8s.io/jobset-uid"
_OF_SET = ("replicatedJobs", "*", "template", "spec")
_POD_OF_SET = f"{{name}}-{SET_RANKS}-0-{{index}}-xxxxx"

# On all pods: kubeflow/trainer v1.9.4, pkg/apis/kubeflow.org/v1; Kubernetes, "Well-Known Labels".
WORKLOADS = {
    each.kind: each
    for each in (
        WorkloadKind(
            kind="PyTorchJob",
            api_version="kubeflow.org/v1",
            plural="pytorchjobs",
            job_label="training.kubeflow.org/job-name",
            index_label="training.kubeflow.org/replica-index",
            templates=("pytorchReplicaSpecs", "*"),
            count="replicas",
            controller=("kubeflow", "training-operator"),
            webhook="validator.training-operator.kubeflow.org",
            certificate="training-operator-webhook-cert",
            definitions=("pytorchjobs",),
            image=pins.TRAINING_OPERATOR_IMAGE,
        ),
        # kubeflow/trainer v2.3.0, pkg/apis/trainer/v1alpha1; it labels no pod itself.
        WorkloadKind(
            kind="TrainJob",
            api_version="trainer.kubeflow.org/v1alpha1",
            plural="trainjobs",
            job_label="megatron-eks/trainjob",
            index_label=_INDEX,
            templates=_OF_SET,
            count="parallelism",
            controller=("kubeflow-system", "kubeflow-trainer-controller-manager"),
            webhook="validator.trainer.kubeflow.org",
            mutating="defaulter.trainer.kubeflow.org",
            certificate="kubeflow-trainer-webhook-cert",
            definitions=("trainjobs", "trainingruntimes", "clustertrainingruntimes"),
            uid_label=_UID_OF_SET,
            runtime="TrainingRuntime",
            makes="JobSet",
            image=pins.TRAINER_IMAGE,
            last_pod=_POD_OF_SET,
            fixed=True,
        ),
        # kubernetes-sigs/jobset v0.12.0, api/jobset/v1alpha2; its Job's label is on the pods too.
        WorkloadKind(
            kind="JobSet",
            api_version="jobset.x-k8s.io/v1alpha2",
            plural="jobsets",
            job_label="jobset.sigs.k8s.io/jobset-name",
            index_label=_INDEX,
            templates=_OF_SET,
            count="parallelism",
            controller=("jobset-system", "jobset-controller"),
            webhook="jobset-validating-webhook-configuration",
            mutating="jobset-mutating-webhook-configuration",
            certificate="jobset-webhook-server-cert",
            definitions=("jobsets",),
            uid_label=_UID_OF_SET,
            image=pins.JOBSET_IMAGE,
            last_pod=_POD_OF_SET,
            fixed=True,
        ),
        WorkloadKind(
            kind="Job",
            api_version="batch/v1",
            plural="jobs",
            job_label="batch.kubernetes.io/job-name",
            index_label=_INDEX,
            templates=(),
            count="parallelism",
        ),
    )
}
"""By kind. A pod belongs to the first whose label it has."""

JOB_LABELS = frozenset(each.job_label for each in WORKLOADS.values())

FINAL_EXIT_CODES = (2, 3, 4)
"""Of our programs, as another try ends the same: wrong usage, not found, a check failed."""

CONTROLLED = tuple(kind for kind, each in WORKLOADS.items() if each.controller)
"""The kinds that Kubernetes itself knows nothing of."""


WITH_PODS = {each.runtime or kind: each for kind, each in WORKLOADS.items()}
"""By the kind of the object that has the pod templates, in files."""

MADE = "made"
"""Of a job as it is read here: what it becomes, or will by what is beside it."""


def whole(manifest: Mapping[str, Any], beside: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a job of a file with what it will become."""
    runtime = WORKLOADS[manifest["kind"]].runtime
    made = [(MADE, each["spec"]["template"]) for each in beside if each["kind"] == runtime]
    return {**manifest, **dict(made)}


def templates(manifest: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return how many pods an object is to have of each template."""
    workload = WITH_PODS.get(manifest["kind"]) or WORKLOADS[manifest["kind"]]
    made = manifest["spec"]["template"] if manifest["kind"] == workload.runtime else manifest
    found: list[Any] = [made.get(MADE, made)["spec"]]
    for step in workload.templates:
        if step == "*":
            several = (each.values() if isinstance(each, dict) else each for each in found)
            found = [below for each in several for below in each]
        else:
            found = [each[step] for each in found]
    return [(each.get(workload.count, 1), each["template"]) for each in found]
