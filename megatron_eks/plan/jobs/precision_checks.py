"""Whether a model can be computed in FP8 on its GPUs."""

from typing import TYPE_CHECKING

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.job import MegatronJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.catalog.instances import InstanceType
    from megatron_eks.catalog.models import ModelShape
    from megatron_eks.config.errors import Path
    from megatron_eks.config.job import MegatronRun

# Transformer Engine asserts that 8 divides the rows of an FP8 matrix and 16 its columns, and in the
# backward pass rows become columns (transformer_engine/pytorch/utils.py, assert_dim_for_fp8_exec).
_STEP = 16
_BLACKWELL = 10


def check_precision(
    job: "MegatronRun", model: "ModelShape", instance: "InstanceType"
) -> "Iterator[Finding]":
    """Yield why Transformer Engine would refuse FP8."""
    path: Path = ("training", "precision")
    yield from _block_scaling(job, instance)
    if job.training.precision != "fp8":
        return
    if not instance.gpu.has_fp8:
        yield Finding(Code.PRECISION, path, f"{instance.gpu.name} has no FP8", "use bf16")
        return
    for name, size in _sizes(job, model):
        if size % _STEP:
            found = f"{name} is {size} on each GPU, and FP8 needs multiples of {_STEP}"
            yield Finding(Code.PRECISION, path, found, "use bf16, or change model or layout")


def _block_scaling(job: "MegatronRun", instance: "InstanceType") -> "Iterator[Finding]":
    """Yield scaling that the GPUs have no units for (Transformer Engine, "FP8 and FP4 primer")."""
    if instance.gpu.cuda_major >= _BLACKWELL or not isinstance(job, MegatronJob):
        return
    words = [part for word in job.extra_args for part in word.split("=")]
    for index, word in enumerate(job.extra_args):
        wanted = {"--fp8-recipe": "mxfp8", "--fp4-format": "e2m1"}.get(word.partition("=")[0])
        if wanted and wanted in words:
            found = f"{wanted}: {instance.gpu.name} has no units for it, and Blackwell has"
            remedy = "use --fp8-recipe delayed or tensorwise, or another type"
            yield Finding(Code.PRECISION, ("extra_args", index), found, remedy)


def _sizes(job: "MegatronRun", model: "ModelShape") -> "Iterator[tuple[str, int]]":
    """Yield the dimensions of the matrices that a rank multiplies."""
    parallelism, training = job.parallelism, job.training
    tensor = parallelism.tensor
    feed_forward = (parallelism.expert_tensor or tensor) if model.num_experts else tensor
    groups = max(model.num_query_groups, tensor)  # Megatron copies groups to reach the ranks
    heads = model.num_attention_heads + 2 * groups
    yield "hidden_size", model.hidden_size
    yield "ffn_hidden_size", model.ffn_hidden_size // feed_forward
    yield "the width of queries, keys and values", heads * model.kv_channels // tensor
    tokens = training.sequence_length * training.micro_batch_size // parallelism.context
    yield "the number of tokens", tokens
