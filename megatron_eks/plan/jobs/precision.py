"""Whether a model can be computed in FP8 on its GPUs."""

from collections.abc import Iterator
from itertools import pairwise

from megatron_eks.catalog.gpus import Gpu, lacks
from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Findings, Path
from megatron_eks.config.job import MegatronBridgeJob, MegatronRun
from megatron_eks.plan.jobs.arguments import fp8_recipe

# Transformer Engine asserts that 8 divides the rows of an FP8 matrix and 16 its columns, and in the
# backward pass rows become columns (transformer_engine/pytorch/utils.py, assert_dim_for_fp8_exec).
_STEP = 16
# With MXFP8 32 values share a scale, in both directions (its user guide, "MXFP8", block size).
_STEP_OF_BLOCKS = 32
_FP4 = "nvfp4"
# By Bridge's names: of the precision, and of the model that gets it from there.
_RECIPES = ("mixed_precision.fp8_recipe", "model.fp8_recipe")


def check_precision(job: MegatronRun, model: ModelShape, instance: InstanceType) -> Findings:
    """Yield why Transformer Engine would refuse FP8."""
    path: Path = ("training", "precision")
    yield from _recipe(job, instance.gpu)
    precision = job.training.precision
    if precision == "bf16":
        return
    if missing := lacks(instance.gpu, precision):
        yield Finding(Code.PRECISION, path, missing, "use bf16, or fp8 on Hopper and newer")
        return
    if not instance.gpu.has_fp8:
        yield Finding(Code.PRECISION, path, f"{instance.gpu.name} has no FP8", "use bf16")
        return
    if precision != "fp8":
        blocks = True
    elif isinstance(job, MegatronBridgeJob):
        blocks = "mxfp8" in {job.overrides.get(name) for name in _RECIPES}
    else:
        blocks = fp8_recipe(job.extra_args) == "mxfp8"
    step, what = _STEP, "FP8"
    if blocks:
        step, what = _STEP_OF_BLOCKS, "NVFP4" if precision == "nvfp4" else "MXFP8"
    for name, size in _sizes(job, model):
        if size % step:
            found = f"{name} is {size} on each GPU, and {what} needs multiples of {step}"
            yield Finding(Code.PRECISION, path, found, "use bf16, or change model or layout")


def _recipe(job: MegatronRun, gpu: Gpu) -> Findings:
    for path, word, recipe in _asked(job):
        # Without any FP8 a recipe of FP8 has no effect, or the precision itself is refused.
        known = recipe if gpu.has_fp8 or recipe == _FP4 else None
        if known and (missing := lacks(gpu, known)):
            remedy = "use --fp8-recipe delayed or tensorwise, or another type"
            if recipe == _FP4:
                remedy = "remove it, or use another type"
            elif path[0] == "overrides":
                remedy = "use delayed or tensorwise, or another type"
            yield Finding(Code.PRECISION, path, f"{word}: {missing}", remedy)


def _asked(job: MegatronRun) -> Iterator[tuple[Path, str, str]]:
    if isinstance(job, MegatronBridgeJob):
        for name, value in job.overrides.items():
            if name in _RECIPES and job.training.precision == "fp8":
                yield ("overrides", name), str(value), str(value)
        return
    for index, (each, after) in enumerate(pairwise([*job.extra_args, ""])):
        option, _, value = each.partition("=")
        if option in {"--fp8-recipe", "--fp4-format"}:
            recipe = _FP4 if option == "--fp4-format" else value or after
            yield ("extra_args", index), value or after, recipe


def _sizes(job: MegatronRun, model: ModelShape) -> Iterator[tuple[str, int]]:
    parallelism, training = job.parallelism, job.training
    tensor = parallelism.tensor
    groups = max(model.num_query_groups, tensor)  # Megatron copies groups to reach the ranks
    heads = model.num_attention_heads + 2 * groups
    yield "hidden_size", model.hidden_size
    experts = model.expert_layers(0, model.num_layers)
    if experts < model.num_layers:
        yield "ffn_hidden_size", model.ffn_hidden_size // tensor
    if experts:
        name = "moe_ffn_hidden_size" if model.moe_ffn_hidden_size else "ffn_hidden_size"
        yield name, model.expert_width // (parallelism.expert_tensor or tensor)
    yield "the width of queries, keys and values", heads * model.kv_channels // tensor
    tokens = training.sequence_length * training.micro_batch_size // parallelism.context
    yield "the number of tokens", tokens
