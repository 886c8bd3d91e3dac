"""Whether a model can be computed in FP8 on its GPUs."""

from itertools import pairwise
from typing import TYPE_CHECKING

from megatron_eks.catalog.precisions import lacks
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.job import MegatronJob
from megatron_eks.plan.jobs.arguments import fp8_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.catalog.gpus import Gpu
    from megatron_eks.catalog.instances import InstanceType
    from megatron_eks.catalog.models import ModelShape
    from megatron_eks.config.errors import Path
    from megatron_eks.config.job import MegatronRun

# Transformer Engine asserts that 8 divides the rows of an FP8 matrix and 16 its columns, and in the
# backward pass rows become columns (transformer_engine/pytorch/utils.py, assert_dim_for_fp8_exec).
_STEP = 16
# With MXFP8 32 values share a scale, in both directions (its user guide, "MXFP8", block size).
_STEP_OF_BLOCKS = 32


def check_precision(
    job: "MegatronRun", model: "ModelShape", instance: "InstanceType"
) -> "Iterator[Finding]":
    """Yield why Transformer Engine would refuse FP8."""
    path: Path = ("training", "precision")
    yield from _recipe(job, instance.gpu)
    if job.training.precision != "fp8":
        return
    if not instance.gpu.has_fp8:
        yield Finding(Code.PRECISION, path, f"{instance.gpu.name} has no FP8", "use bf16")
        return
    words = job.extra_args if isinstance(job, MegatronJob) else []
    blocks = fp8_recipe(words) == "mxfp8"
    step, what = (_STEP_OF_BLOCKS, "MXFP8") if blocks else (_STEP, "FP8")
    for name, size in _sizes(job, model):
        if size % step:
            found = f"{name} is {size} on each GPU, and {what} needs multiples of {step}"
            yield Finding(Code.PRECISION, path, found, "use bf16, or change model or layout")


def _recipe(job: "MegatronRun", gpu: "Gpu") -> "Iterator[Finding]":
    """Yield recipes that the GPUs have no units for."""
    words = job.extra_args if isinstance(job, MegatronJob) else []
    for index, (word, after) in enumerate(pairwise([*words, ""])):
        option, _, value = word.partition("=")
        recipe = {"--fp8-recipe": value or after, "--fp4-format": "nvfp4"}.get(option)
        # Without any FP8 a recipe of FP8 has no effect, or the precision itself is refused.
        known = recipe if gpu.has_fp8 or recipe == "nvfp4" else None
        if known and (missing := lacks(gpu, known)):
            remedy = "use --fp8-recipe delayed or tensorwise, or another type"
            fitting = remedy if gpu.has_fp8 else "use bf16, or another type"
            found = f"{value or after}: {missing}"
            yield Finding(Code.PRECISION, ("extra_args", index), found, fitting)


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
