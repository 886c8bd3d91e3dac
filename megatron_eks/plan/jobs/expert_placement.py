"""Whether the ranks that exchange tokens for their experts need the network for it."""

from typing import TYPE_CHECKING

from megatron_eks.config.codes import Code
from megatron_eks.config.errors import Finding, Level
from megatron_eks.config.job import MegatronJob
from megatron_eks.plan.jobs.common import gpus_per_node
from megatron_eks.plan.jobs.layout import job_layout, job_memory
from megatron_eks.plan.jobs.memory_checks import fits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from megatron_eks.catalog.instances import InstanceType
    from megatron_eks.catalog.models import ModelShape
    from megatron_eks.config.job import MegatronRun

_HIDES_IT = "--overlap-moe-expert-parallel-comm"


def check_expert_placement(
    job: "MegatronRun", model: "ModelShape", instance: "InstanceType"
) -> "Iterator[Finding]":
    """Warn of experts that leave a node only because each of them is divided too.

    Megatron-LM, megatron/core/transformer/moe/README.md, guideline 2: keep both inside NVLink.
    Experts follow tensor parallelism unless the job says otherwise, and their ranks stand side by
    side: megatron/core/parallel_state.py, order tp-cp-ep-dp-pp.
    """
    expert, divided = job.parallelism.expert, job.parallelism.expert_tensor
    each = divided or job.parallelism.tensor
    node = gpus_per_node(job, instance)
    hidden = isinstance(job, MegatronJob) and _HIDES_IT in job.extra_args
    if each == 1 or not 1 < expert <= node < expert * each or hidden:
        return
    whole = job.parallelism.model_copy(update={"expert_tensor": 1})
    changed = job.model_copy(update={"parallelism": whole})
    if not fits(job_memory(changed, model, job_layout(changed, job.nodes * node), instance)):
        return
    follows = "" if divided else ", as parallelism.tensor"
    found = (
        f"{expert} ranks for experts, each divided over {each}{follows}: {expert * each} ranks "
        f"exchange tokens between nodes of {node} GPUs"
    )
    remedy = f"set parallelism.expert_tensor: 1, and the {expert} stay on one node's NVLink"
    path = ("parallelism", "expert_tensor" if divided else "expert")
    yield Finding(Code.EXPERTS_ACROSS_NODES, path, found, remedy, Level.WARNING)
