"""How the pods of a job run, and where its metrics go."""

from typing import Annotated, Literal

from pydantic import Field

from megatron_eks.catalog.workloads import Workload
from megatron_eks.config import forms
from megatron_eks.config.architecture import Positive
from megatron_eks.config.forms import Model


class Elastic(Model):
    """Bounds of an elastic job."""

    min_nodes: Positive
    max_nodes: Positive


class SecretKey(Model):
    """One key of a Kubernetes Secret."""

    secret: forms.DnsName
    key: Annotated[str, forms.pattern("entry")]


class Wandb(Model):
    """A project of Weights & Biases."""

    project: str
    secret: forms.DnsName
    """A Kubernetes Secret that holds the key as `token`: `meks secret set`."""


class Mlflow(Model):
    """An experiment of MLflow, by the address of its server or the ARN of a managed one."""

    uri: str | None = None
    arn: Annotated[str, forms.pattern("mlflow_arn")] | None = None
    experiment: str


class Tracking(Model):
    """Trackers that also get a run's metrics."""

    wandb: Wandb | None = None
    """Weights & Biases."""
    mlflow: Mlflow | None = None
    """MLflow, also SageMaker's."""


class Runtime(Model):
    """How the pods of a job run."""

    env: dict[str, str] = Field(default_factory=dict)
    """Further variables of the pods; each is judged by name."""
    secret_env: dict[str, SecretKey] = Field(default_factory=dict)
    """Variables whose values Kubernetes takes from Secrets, such as WANDB_API_KEY."""
    cpu: Positive | None = None
    """Cores that a pod requests. Default: its share of the node."""
    memory_gib: Positive | None = None
    """Most memory of a pod, /dev/shm included. Default: its share of the node."""
    shm_gib: Positive | None = None
    """Size of /dev/shm; it counts against the pod's memory. Default: 128, or the GPUs' share."""
    distributed_timeout_minutes: int = Field(default=10, ge=1, le=1440)
    """A collective that takes longer ends the job's processes."""
    gang_restarts: int = Field(default=3, ge=0, le=1000)
    """How often all ranks may start again before the job has failed."""
    rendezvous: Literal["static", "c10d", "etcd"] = "static"
    """How ranks find each other; all but static leave the number of nodes open."""
    elastic: Elastic | None = None
    """Train on whatever number of nodes between two bounds is there."""
    host_network: bool = False
    """EFA does not need it."""
    ipc_lock: bool = False
    """EFA does not need it either."""
    torchrun_path: Annotated[str, forms.pattern("program")] = "torchrun"
    workload: Workload | None = None
    """What runs the ranks. Default: the platform's; an Indexed Job for kind ddp."""
    queue: str | None = None
    tracking: Tracking | None = None
    """Trackers that also get the metrics of the run."""
    priority_class: forms.DnsName | None = None
    """Default: `megatron-training`; or `megatron-validation`, or a class of your own."""
    keep_days: int = Field(default=7, ge=1, le=365)
    """How long a finished job and its pods stay visible."""
