"""Job files: everything a user can say about a job."""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Literal, get_args

from pydantic import Field

from megatron_eks.config import forms
from megatron_eks.config.architecture import AnyModel, Positive
from megatron_eks.config.blocks import blocks
from megatron_eks.config.errors import Path
from megatron_eks.config.forms import Model, Used
from megatron_eks.config.runtime import Runtime
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

Use = tuple[str, Path, str, str]
"""How a job uses a path or URI, the key that names it, what it is, and itself."""


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

    def uses(self) -> Iterator[Use]:
        """Yield what it has from others, and what it leaves to them: each field that is `Used`."""
        for path, use in _used_fields(type(self)):
            yield from ((use.how, place, use.what, each) for place, each in _texts(self, path))

    def used(self, how: str) -> list[tuple[Path, str, str]]:
        """Return what it uses in one of these ways: its key, what it is, and where."""
        return [use[1:] for use in self.uses() if use[0] == how]


@cache
def _used_fields(kind: type[Job]) -> list[tuple[Path, Used]]:
    return [
        ((*path, name), use)
        for path, block in blocks(kind)
        for name, field in block.model_fields.items()
        for use in field.metadata
        if isinstance(use, Used)
    ]


def _texts(part: object, path: Path, place: Path = ()) -> Iterator[tuple[Path, str]]:
    if isinstance(part, tuple):
        for index, each in enumerate(part):
            yield from _texts(each, path[1:], (*place, index))
    elif path:
        yield from _texts(getattr(part, str(path[0]), None), path[1:], (*place, path[0]))
    elif part is not None:
        yield place, str(part)


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
    recipe: Annotated[str, forms.pattern("recipe")]
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
    tokenizer: Annotated[forms.AbsolutePath, Used("reads", "tokenizer")]
    json_keys: tuple[forms.Text, ...] = Field(default=("text",), min_length=1)
    append_eod: bool = True
    add_bos: bool = False
    on_bad_line: Literal["fail", "skip"] = "fail"
    shards: Positive = 1
    """Pods that share the work."""

    def uses(self) -> Iterator[Use]:
        """Yield text in S3 as well, and a data set for each key."""
        yield from super().uses()
        for index, source in enumerate(self.input):
            if source.startswith("s3://"):
                yield "fetches", ("input", index), "text", source
        for index, key in enumerate(self.json_keys):
            given = "json_keys" in self.model_fields_set
            path: Path = ("json_keys", index) if given else ("output_prefix",)
            yield "writes", path, "data", f"{self.output_prefix}_{key}_document"


class FetchJob(Job):
    """Brings a model, a tokenizer or data onto the shared file system."""

    kind: Literal["fetch"]
    model: forms.Text | None = None
    """A Hugging Face model, its tokenizer included."""
    tokenizer: forms.Text | None = None
    """Only the tokenizer of a Hugging Face model."""
    s3_uri: Annotated[forms.S3Uri | None, Used("fetches", "files")] = None
    """Or everything below an S3 prefix."""
    directory: forms.AbsolutePath
    token_secret: forms.DnsName | None = None
    """Name of a Kubernetes Secret with the Hugging Face token; mounted as a file."""

    def uses(self) -> Iterator[Use]:
        """Yield what it brings as well; what a prefix of S3 holds, nobody knows here."""
        yield from super().uses()
        kinds = {"weights": self.model, "tokenizer": self.tokenizer, "files": self.s3_uri}
        for kind in (each for each, source in kinds.items() if source):
            yield "writes", ("directory",), kind, self.directory


class ConvertCheckpointJob(Job):
    """Converts weights between Hugging Face's and Megatron's form."""

    kind: Literal["convert_checkpoint"]
    direction: Literal["import", "export"]
    """To Megatron's form, or back."""
    source: forms.AbsolutePath
    target: forms.AbsolutePath
    model: forms.Text
    """The preset that the weights belong to."""

    def uses(self) -> Iterator[Use]:
        """Yield the weights in both forms."""
        imports = self.direction == "import"
        yield "reads", ("source",), "weights" if imports else "trained", self.source
        yield "writes", ("target",), "base" if imports else "exported", self.target


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
