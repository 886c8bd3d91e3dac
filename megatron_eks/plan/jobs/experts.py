"""How the experts of a model lie over GPUs."""

from collections.abc import Iterator

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding
from megatron_eks.config.job import MegatronRun
from megatron_eks.plan.jobs.resources import job_gpus
from megatron_eks.plan.jobs.stages import divisors


def check_experts(job: MegatronRun, model: ModelShape, instance: InstanceType) -> Iterator[Finding]:
    """Yield what keeps experts from being divided over the GPUs, or that there are none."""
    parallelism, experts = job.parallelism, model.num_experts
    if experts is None:
        for name in ("expert", "expert_tensor"):
            size = getattr(parallelism, name)
            if size not in {None, 1}:
                found = f"{size} ranks for experts, and the model has none"
                remedy = "remove it, or name a model with num_experts"
                yield Finding(Code.LAYOUT_EXPERTS, ("parallelism", name), found, remedy)
        return
    expert, expert_tensor = parallelism.expert, parallelism.expert_tensor or parallelism.tensor
    if not model.moe_router_topk or model.moe_router_topk > experts:
        found = f"each token goes to {model.moe_router_topk} of {experts} experts"
        remedy = f"use a number from 1 to {experts}"
        yield Finding(Code.LAYOUT_EXPERTS, ("model", "moe_router_topk"), found, remedy)
    if experts % expert:
        found = f"{expert} does not divide {experts} experts"
        remedy = f"use one of {divisors(experts)}"
        yield Finding(Code.LAYOUT_EXPERTS, ("parallelism", "expert"), found, remedy)
    if parallelism.tensor > 1 and not parallelism.sequence_parallel:
        found = "experts with tensor parallelism need sequence parallelism"
        place = ("parallelism", "sequence_parallel")
        yield Finding(Code.LAYOUT_EXPERTS, place, found, "set it to true")
    path = ("parallelism", "expert_tensor")
    name = "moe_ffn_hidden_size" if model.moe_ffn_hidden_size else "ffn_hidden_size"
    if model.expert_width % expert_tensor:
        found = f"{expert_tensor} does not divide {name} {model.expert_width}"
        yield Finding(Code.LAYOUT_EXPERTS, path, found, "use a divisor of it")
    if model.add_bias_linear and expert_tensor > 1:
        found = "experts with biases cannot be split"
        yield Finding(Code.LAYOUT_EXPERTS, path, found, "use 1, or model.add_bias_linear: false")
    world = job_gpus(job, instance)
    inner = expert * expert_tensor * parallelism.pipeline
    if world % inner:
        product = f"expert {expert} x expert tensor {expert_tensor} x pipeline"
        found = f"{product} {parallelism.pipeline} = {inner} does not divide {world} GPUs"
        remedy = f"choose sizes whose product is one of {divisors(world)}"
        yield Finding(Code.LAYOUT_EXPERTS, ("parallelism", "expert"), found, remedy)
