"""Job files: everything a user can say about a job."""

from typing import Literal, get_args

from pydantic import Field

from megatron_eks.catalog.workloads import Workload
from megatron_eks.config import forms
from megatron_eks.config.architecture import AnyModel, Positive
from megatron_eks.config.forms import Model
from megatron_eks.config.training import (
    AnyTraining,
    Checkpoint,
    Code,
    FsdpData,
    FsdpTraining,
    MegatronData,
    MegatronTraining,
    OwnCheckpoint,
    OwnProgram,
    Parallelism,
)


class Elastic(Model):
    """Bounds of an elastic job."""

    min_nodes: Positive
    max_nodes: Positive


class SecretKey(Model):
    """One key of a Kubernetes Secret."""

    secret: forms.DnsName
    key: forms.SecretKeyName


class Wandb(Model):
    """A project of Weights & Biases."""

    project: str
    secret: forms.DnsName
    """A Kubernetes Secret that holds the key as `token`: `meks secret set`."""


class Mlflow(Model):
    """An experiment of MLflow, by the address of its server or the ARN of a managed one."""

    uri: str | None = None
    arn: forms.MlflowArn | None = None
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
    torchrun_path: forms.Program = "torchrun"
    workload: Workload | None = None
    """What runs the ranks. Default: the platform's; an Indexed Job for kind ddp."""
    queue: str | None = None
    tracking: Tracking | None = None
    """Trackers that also get the metrics of the run."""
    priority_class: forms.DnsName | None = None
    """Default: `megatron-training`; or `megatron-validation`, or a class of your own."""
    keep_days: int = Field(default=7, ge=1, le=365)
    """How long a finished job and its pods stay visible."""


class Job(Model):
    """What every job has."""

    schema_version: forms.SchemaVersion
    kind: str
    name: forms.DnsLabel = Field(max_length=50)
    team: forms.DnsLabel | None = None
    """Whose job it is, on a cluster with teams."""
    pool: forms.DnsLabel | None = None
    image: forms.Text = "megatron"
    """A repository of this cluster (`megatron`, `fsdp`), or any URI with a digest."""
    runtime: Runtime = Runtime()


class GpuJob(Job):
    """A job that takes GPU nodes."""

    pool: forms.DnsLabel
    """A pool of the cluster file."""
    nodes: Positive
    """Each runs one pod."""
    gpus_per_node: Positive | None = None
    """Default: all of the instance type's. CPU, memory, /dev/shm and EFA follow."""


class TrainingJob(GpuJob):
    """A job that trains a model and saves it."""

    model: AnyModel
    checkpoint: Checkpoint


class MegatronRun(TrainingJob):
    """What Megatron-LM and Megatron-Bridge have in common."""

    parallelism: Parallelism = Parallelism()
    training: MegatronTraining
    data: MegatronData
    extra_args: tuple[str, ...] = ()
    """Further arguments of Megatron-LM; those that the plan sets itself are refused."""


class MegatronJob(MegatronRun):
    """Pre-training or continued pre-training with Megatron-LM."""

    kind: Literal["megatron"]


class MegatronBridgeJob(MegatronRun):
    """The same through a Megatron-Bridge recipe."""

    kind: Literal["megatron_bridge"]
    recipe: forms.Recipe
    """A function of `megatron.bridge.recipes`, such as `llama31_8b_pretrain_config`."""
    overrides: dict[str, bool | int | float | str] = Field(default_factory=dict)
    """Values of the recipe's configuration by dotted name, such as `ddp.overlap_grad_reduce`."""


class TorchRun(TrainingJob):
    """What FSDP and DDP have in common."""

    image: forms.Text = "fsdp"
    training: FsdpTraining = FsdpTraining()
    data: FsdpData
    token_secret: forms.DnsName | None = None
    """Secret whose key `token` is a Hugging Face token, for gated data and tokenizers."""


Run = MegatronRun | TorchRun
"""A run of one of this project's trainers."""


class FsdpJob(TorchRun):
    """Training with PyTorch FSDP2."""

    kind: Literal["fsdp"]


class DdpJob(TorchRun):
    """Training with PyTorch DistributedDataParallel as an Indexed Job."""

    kind: Literal["ddp"]


class TorchrunJob(GpuJob):
    """Any program of yours, started by torchrun once for each GPU."""

    kind: Literal["torchrun"]
    image: forms.Text = "fsdp"
    program: OwnProgram
    code: Code = Code()
    model: AnyModel | None = None
    """With `training`: memory, speed and cost are predicted."""
    parallelism: Parallelism = Parallelism()
    """Of the prediction, where `training` has Megatron's keys."""
    training: AnyTraining | None = None
    """What a step works on, in the keys of kind megatron, or of fsdp; for predictions alone."""
    checkpoint: OwnCheckpoint | None = None


class DataPrepJob(Job):
    """Turns JSONL into Megatron's indexed format."""

    kind: Literal["data_prep"]
    input: tuple[forms.Place, ...] = Field(min_length=1)
    """JSONL files, folders or patterns on the shared file system, or S3 URIs."""
    output_prefix: forms.AbsolutePath
    """The data set becomes PREFIX_KEY_document.bin and .idx."""
    tokenizer: forms.AbsolutePath
    json_keys: tuple[forms.Text, ...] = Field(default=("text",), min_length=1)
    append_eod: bool = True
    add_bos: bool = False
    on_bad_line: Literal["fail", "skip"] = "fail"
    shards: Positive = 1
    """Pods that share the work."""


class FetchJob(Job):
    """Brings a model, a tokenizer or data onto the shared file system."""

    kind: Literal["fetch"]
    model: forms.Text | None = None
    """A Hugging Face model, its tokenizer included."""
    tokenizer: forms.Text | None = None
    """Only the tokenizer of a Hugging Face model."""
    s3_uri: forms.S3Uri | None = None
    """Or everything below an S3 prefix."""
    directory: forms.AbsolutePath
    token_secret: forms.DnsName | None = None
    """Name of a Kubernetes Secret with the Hugging Face token; mounted as a file."""


class ConvertCheckpointJob(Job):
    """Converts weights between Hugging Face's and Megatron's form."""

    kind: Literal["convert_checkpoint"]
    direction: Literal["import", "export"]
    """To Megatron's form, or back."""
    source: forms.AbsolutePath
    target: forms.AbsolutePath
    model: forms.Text
    """The preset that the weights belong to."""


class NcclTestJob(GpuJob):
    """All-reduce over nodes, with a pass mark for bus bandwidth."""

    kind: Literal["nccl_test"]
    min_bytes: int = Field(default=8, ge=1)
    max_bytes: int = Field(default=17179869184, ge=1)
    pass_busbw_gb_s: float | None = Field(default=None, gt=0)
    """Bus bandwidth that the largest message must reach; default: the catalogue's."""


AnyJob = (
    MegatronJob
    | MegatronBridgeJob
    | FsdpJob
    | DdpJob
    | TorchrunJob
    | DataPrepJob
    | FetchJob
    | ConvertCheckpointJob
    | NcclTestJob
)

JOB_KINDS: dict[str, type[AnyJob]] = {
    get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in get_args(AnyJob)
}
"""By the word in its `kind`."""
