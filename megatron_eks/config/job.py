"""Job files: everything a user can say about a job; names are Megatron's wherever it has one."""

from typing import Annotated, Literal

from pydantic import Field

from megatron_eks.config.architecture import AnyModel, Fraction, Natural, Positive
from megatron_eks.config.model import AbsolutePath, DnsLabel, DnsName, Model, Program, S3Uri, Text


class Parallelism(Model):
    """How the model is laid over the GPUs; data parallel size is what remains."""

    tensor: Positive = 1
    """GPUs that share each layer; inside a node."""
    pipeline: Positive = 1
    """Stages that the layers are divided into."""
    virtual_pipeline: Positive | None = None
    """Model chunks per pipeline rank."""
    context: Positive = 1
    """GPUs that share each sequence."""
    expert: Positive = 1
    expert_tensor: Positive | None = None
    sequence_parallel: bool = True
    """Shards activations between tensor parallel regions; needs `tensor` above 1."""
    distributed_optimizer: bool = True
    """Shards the optimizer over the data parallel ranks."""


class MegatronTraining(Model):
    """Batch, schedule and optimizer of a Megatron run."""

    micro_batch_size: Positive = 1
    """Sequences a rank works on at once."""
    global_batch_size: Positive
    """Sequences of one optimizer step, over all ranks."""
    sequence_length: Positive = 4096
    train_iters: Positive
    learning_rate: float = Field(gt=0)
    min_learning_rate: float = Field(default=0.0, ge=0)
    lr_schedule: Literal["constant", "linear", "cosine", "WSD"] = "cosine"
    warmup_iters: Natural = 0
    decay_iters: Positive | None = None
    """Default: `train_iters`."""
    weight_decay: float = Field(default=0.1, ge=0)
    adam_beta1: Fraction = 0.9
    adam_beta2: Fraction = 0.95
    clip_grad: float = Field(default=1.0, ge=0)
    precision: Literal["bf16", "fp8"] = "bf16"
    """fp8 needs Hopper or newer."""
    recompute: Literal["none", "selective", "full"] = "selective"
    """What is computed again in the backward pass to save memory."""
    recompute_method: Literal["uniform", "block"] | None = None
    recompute_layers: Positive | None = None
    seed: Positive = 1234
    eval_interval: Positive = 500
    eval_iters: Natural = 20
    log_interval: Positive = 10


class Blend(Model):
    """One corpus of a mixture."""

    weight: float = Field(gt=0)
    prefix: AbsolutePath


class MegatronData(Model):
    """Indexed data sets, named without `.bin` and `.idx`."""

    prefix: AbsolutePath | None = None
    """One corpus; or `blend`."""
    blend: tuple[Blend, ...] | None = Field(default=None, min_length=1)
    split: tuple[Annotated[float, Field(ge=0)], ...] = (98, 2, 0)
    """Shares of training, validation and test."""
    tokenizer: AbsolutePath
    """A folder with a Hugging Face tokenizer."""
    cache_dir: AbsolutePath | None = None
    """Where Megatron keeps its shuffled indices; default: beside the data."""
    num_workers: Natural = 8


class Checkpoint(Model):
    """Where a run saves and resumes, and what it starts from."""

    directory: AbsolutePath
    pretrained: AbsolutePath | None = None
    """Base weights of continued pre-training; read only while `directory` holds no checkpoint."""
    interval: Positive = 500
    """Iterations between two checkpoints."""
    keep_last: Positive = 3
    """Older complete checkpoints are deleted."""
    format: Literal["torch_dist", "torch"] = "torch_dist"
    async_save: bool = True
    s3_uri: S3Uri | None = None


class Elastic(Model):
    """Bounds of an elastic job."""

    min_nodes: Positive
    max_nodes: Positive


class Runtime(Model):
    """How the pods of a job run."""

    env: dict[str, str] = Field(default_factory=dict)
    """Further variables of the pods; each is judged by name."""
    shm_gib: Positive = 128
    """Size of /dev/shm; it counts against the pod's memory."""
    distributed_timeout_minutes: int = Field(default=10, ge=1, le=1440)
    """A collective that takes longer ends the job's processes."""
    gang_restarts: int = Field(default=3, ge=0, le=1000)
    """How often all ranks may start again before the job has failed."""
    rendezvous: Literal["static", "c10d", "etcd"] = "static"
    elastic: Elastic | None = None
    host_network: bool = False
    """EFA does not need it."""
    ipc_lock: bool = False
    """EFA does not need it either."""
    torchrun_path: Program = "torchrun"
    queue: str | None = None
    priority_class: DnsName | None = None
    """Default: `megatron-training`; or `megatron-validation`, or a class of your own."""
    keep_days: int = Field(default=7, ge=1, le=365)
    """How long a finished job and its pods stay visible."""


class Job(Model):
    """What every job has."""

    schema_version: Literal[1]
    name: DnsLabel = Field(max_length=50)
    pool: DnsLabel | None = None
    image: Text = "megatron"
    """A repository of this cluster (`megatron`, `fsdp`), or any URI with a digest."""
    runtime: Runtime = Runtime()


class GpuJob(Job):
    """A job that takes whole GPU nodes."""

    pool: DnsLabel
    """A pool of the cluster file."""
    nodes: Positive
    """Each runs one pod on all of its GPUs."""
    gpus_per_node: Positive | None = None
    """Default: all of the instance type's."""


class _MegatronRun(GpuJob):
    model: AnyModel
    parallelism: Parallelism = Parallelism()
    training: MegatronTraining
    data: MegatronData
    checkpoint: Checkpoint
    extra_args: tuple[str, ...] = ()
    """Further arguments of the program."""


class MegatronJob(_MegatronRun):
    """Pre-training or continued pre-training with Megatron-LM."""

    kind: Literal["megatron"]


class MegatronBridgeJob(_MegatronRun):
    """The same through a Megatron-Bridge recipe."""

    kind: Literal["megatron_bridge"]
    recipe: Text
    overrides: dict[str, bool | int | float | str] = Field(default_factory=dict)


class FsdpTraining(Model):
    """Batch and schedule of an FSDP or DDP run; defaults are the source guide's."""

    max_steps: Positive = 100
    train_batch_size: Positive = 1
    sequence_length: Positive = 2048
    learning_rate: float = Field(default=1e-4, gt=0)
    min_learning_rate: float = Field(default=1e-5, ge=0)
    lr_schedule: Literal["constant", "linear", "cosine"] = "cosine"
    warmup_iters: Natural = 0
    weight_decay: float = Field(default=0.2, ge=0)
    adam_beta1: Fraction = 0.9
    adam_beta2: Fraction = 0.95
    clip_grad: float = Field(default=1.0, ge=0)
    precision: Literal["bf16", "fp8"] = "bf16"
    sharding: Literal["full", "hybrid"] = "full"
    activation_checkpointing: bool = True
    seed: Positive = 42
    validation_interval: Positive = 25
    log_interval: Positive = 1


class FsdpData(Model):
    """A Hugging Face data set and configuration, a JSONL path, or an indexed prefix."""

    dataset: Text
    configuration: str | None = None
    tokenizer: Text
    num_workers: Natural = 2


class _TorchRun(GpuJob):
    image: Text = "fsdp"
    model: AnyModel
    training: FsdpTraining = FsdpTraining()
    data: FsdpData
    checkpoint: Checkpoint


class FsdpJob(_TorchRun):
    """Training with PyTorch FSDP2."""

    kind: Literal["fsdp"]


class DdpJob(_TorchRun):
    """Training with PyTorch DistributedDataParallel as an Indexed Job."""

    kind: Literal["ddp"]


class DataPrepJob(Job):
    """Turns JSONL into Megatron's indexed format."""

    kind: Literal["data_prep"]
    input: tuple[Text, ...] = Field(min_length=1)
    output_prefix: AbsolutePath
    tokenizer: AbsolutePath
    json_keys: tuple[Text, ...] = ("text",)
    append_eod: bool = True
    add_bos: bool = False
    on_bad_line: Literal["fail", "skip"] = "fail"
    shards: Positive = 1


class FetchJob(Job):
    """Brings a model, a tokenizer or data onto the shared file system."""

    kind: Literal["fetch"]
    model: str | None = None
    tokenizer: str | None = None
    s3_uri: S3Uri | None = None
    directory: AbsolutePath
    token_secret: DnsLabel | None = None
    """Name of a Kubernetes Secret with the Hugging Face token; mounted as a file."""


class ConvertCheckpointJob(Job):
    """Converts weights between Hugging Face's and Megatron's form."""

    kind: Literal["convert_checkpoint"]
    direction: Literal["import", "export"]
    source: AbsolutePath
    target: AbsolutePath
    model: Text


class NcclTestJob(GpuJob):
    """All-reduce over nodes, with a pass mark for bus bandwidth."""

    kind: Literal["nccl_test"]
    min_bytes: int = Field(default=8, ge=1)
    max_bytes: int = Field(default=17179869184, ge=1)
    pass_busbw_gb_s: float | None = Field(default=None, gt=0)


AnyJob = (
    MegatronJob
    | MegatronBridgeJob
    | FsdpJob
    | DdpJob
    | DataPrepJob
    | FetchJob
    | ConvertCheckpointJob
    | NcclTestJob
)
