"""Blocks of job files that describe a training run; names are Megatron's where it has one."""

from typing import Annotated, Literal

from pydantic import BaseModel, Discriminator, Field, Tag

from megatron_eks.config import forms
from megatron_eks.config.architecture import Fraction, Natural, Positive
from megatron_eks.config.forms import Model, Used

# Tokens of a corpus: more than the programs' counters of 32 bits hold.
Positive64 = Annotated[int, Field(ge=1, le=10**15)]


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

    @property
    def model_gpus(self) -> int:
        """GPUs of one copy of the model."""
        return self.tensor * self.pipeline * self.context


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
    """Until when the rate falls, by default `train_iters`; WSD: how long, by default a tenth."""
    weight_decay: float = Field(default=0.1, ge=0)
    adam_beta1: Fraction = 0.9
    adam_beta2: Fraction = 0.95
    clip_grad: float = Field(default=1.0, ge=0)
    precision: Literal["bf16", "fp8", "mxfp8", "nvfp4"] = "bf16"
    """fp8 needs Hopper or newer, mxfp8 and nvfp4 Blackwell."""
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
    prefix: Annotated[forms.AbsolutePath, Used("reads", "data")]


class MegatronData(Model):
    """Indexed data sets, named without `.bin` and `.idx`."""

    prefix: Annotated[forms.AbsolutePath | None, Used("reads", "data")] = None
    """One corpus; or `blend`."""
    blend: tuple[Blend, ...] | None = Field(default=None, min_length=1)
    corpus_tokens: Positive64 | None = Field(default=None, exclude=True)
    """What the corpora hold together, as `prepare_data` counted it: for the number of epochs."""
    split: tuple[Annotated[float, Field(ge=0)], ...] = (98, 2, 0)
    """Shares of training, validation and test."""
    tokenizer: Annotated[forms.AbsolutePath, Used("reads", "tokenizer")]
    """A folder with a Hugging Face tokenizer."""
    cache_dir: forms.AbsolutePath | None = None
    """Where Megatron keeps its shuffled indices; default: beside the data."""
    num_workers: Natural = 8

    @property
    def shares(self) -> tuple[float, ...]:
        """The three shares: Megatron takes what is left out for 0 (parse_and_normalize_split)."""
        return (*self.split, 0, 0, 0)[: max(len(self.split), 3)]


class Checkpoint(Model):
    """Where a run saves and resumes, and what it starts from."""

    directory: Annotated[forms.AbsolutePath, Used("writes", "trained")]
    pretrained: Annotated[forms.AbsolutePath | None, Used("reads", "base")] = None
    """Base weights of continued pre-training; read only while `directory` holds no checkpoint."""
    interval: Positive = 500
    """Iterations between two checkpoints. Left out, the plan takes the interval that loses the
    least time to saves and failures; 500 where it predicts no speed."""
    keep_last: Positive = 3
    """Older complete checkpoints are deleted."""
    format: Literal["torch_dist", "torch"] = "torch_dist"
    async_save: bool = True
    s3_uri: Annotated[forms.S3Uri | None, Used("copies", "trained")] = None
    """Where whole checkpoints are copied to as well, the last `keep_last`: a prefix of this job's
    own."""


class FsdpTraining(Model):
    """Batch and schedule of an FSDP or DDP run; defaults are the source guide's."""

    max_steps: Positive = 100
    train_batch_size: Positive = 1
    """Sequences of one step on each GPU."""
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
    """Over all GPUs, or inside each node with a replica a node."""
    activation_checkpointing: bool = True
    seed: Positive = 42
    validation_interval: Positive = 25
    log_interval: Positive = 1


_OF_MEGATRON = MegatronTraining.model_fields.keys() - FsdpTraining.model_fields.keys()


def _whose(value: object) -> str:
    keys = type(value).model_fields if isinstance(value, BaseModel) else value
    return "megatron" if isinstance(keys, dict) and _OF_MEGATRON & keys.keys() else "fsdp"


AnyTraining = Annotated[
    Annotated[MegatronTraining, Tag("megatron")] | Annotated[FsdpTraining, Tag("fsdp")],
    Discriminator(_whose),
]


class FsdpData(Model):
    """What FSDP and DDP train on."""

    dataset: Annotated[forms.Place, Used("reads", "data")]
    """A Hugging Face name, the path of a JSONL file, or the prefix of an indexed data set."""
    configuration: str | None = None
    """Of a Hugging Face data set, such as `en`."""
    tokenizer: Annotated[forms.Place, Used("reads", "tokenizer")]
    """A folder, or a Hugging Face name."""
    corpus_tokens: Positive64 | None = Field(default=None, exclude=True)
    """What the data set holds: for the number of epochs."""
    num_workers: Natural = 2


class OwnProgram(Model):
    """What each rank runs: exactly one of script, module and command."""

    script: forms.RelativePath | None = None
    """A Python file below the job file's folder; its folder goes to the pods with it."""
    module: Annotated[str, forms.pattern("module")] | None = None
    """What `python -m` finds in the image, or in the folder of `code`."""
    command: tuple[forms.Text, ...] | None = Field(default=None, min_length=1)
    """A program of the image and its arguments."""
    args: tuple[str, ...] = ()
    """Arguments of the script or module."""


class Code(Model):
    """The folder that goes to the pods, without an image build."""

    path: forms.RelativePath | None = None
    """Below the job file's folder, `.` for all of it. Default: the script's folder."""
    exclude: tuple[forms.Text, ...] = ()
    """What stays here, in the patterns of .gitignore, beside what .gitignore itself names."""


class OwnCheckpoint(Model):
    """Where a program of yours saves, so that its checkpoints are looked after."""

    directory: Annotated[forms.AbsolutePath, Used("writes", "trained")]
    """Each checkpoint is a folder in it, whose name ends in its step: checkpoint-500."""
    complete_marker: Annotated[str, forms.pattern("file_name")]
    """The file that a save writes last, such as .metadata or trainer_state.json."""
    keep_last: Positive | None = None
    """Older complete checkpoints are deleted. Default: the program's own business."""
    s3_uri: Annotated[forms.S3Uri | None, Used("copies", "trained")] = None
    """Where complete checkpoints are copied to as well: a prefix of this job's own."""
