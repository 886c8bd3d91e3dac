"""Searches all layouts of a Megatron job for the fastest that its checks accept."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.job import MegatronRun
from megatron_eks.plan.jobs.layout import check_layout
from megatron_eks.plan.jobs.memory import fits
from megatron_eks.plan.jobs.resources import gpus_per_node, job_gpus
from megatron_eks.plan.jobs.training import changed, job_memory, job_speed
from megatron_eks.predict.memory import MemoryEstimate
from megatron_eks.predict.throughput import Speed

# Selective recomputation is left out: with flash attention it costs time and saves nothing.
_RECOMPUTE = ("none", "full")


@dataclass(frozen=True)
class Candidate:
    """One layout of a job, and what to expect of it."""

    job: MegatronRun
    memory: MemoryEstimate
    speed: Speed

    @property
    def rank(self) -> tuple[float, int]:
        """Order: time, and of two that are as fast the one that needs less memory."""
        return self.speed.step_seconds, self.memory.per_gpu_bytes


def evaluate(job: MegatronRun, model: ModelShape, instance: InstanceType) -> Candidate | None:
    """Return a job's own layout; None where it is none, or the GPU's peak is unknown."""
    if any(True for _ in check_layout(job, model, instance)):
        return None
    speed = job_speed(job, model, instance)
    return Candidate(job, job_memory(job, model, instance), speed) if speed else None


def search(job: MegatronRun, model: ModelShape, instance: InstanceType) -> list[Candidate]:
    """Return the layouts that fit with room to spare, the fastest first.

    Model, nodes, sequence length, global batch and precision stay: what is learnt is the same.
    """
    found = [
        candidate
        for variant in _variants(job, model, instance)
        for candidate in _microbatches(variant, model, instance)
    ]
    return sorted(found, key=lambda each: each.rank)


def _variants(job: MegatronRun, model: ModelShape, instance: InstanceType) -> Iterator[MegatronRun]:
    """Yield the job in every parallelism whose sizes divide what they must."""
    gpus, batch = job_gpus(job, instance), job.training.global_batch_size
    experts = _divisors(model.num_experts) if model.num_experts else [1]
    for tensor, pipeline, context, expert in product(
        _divisors(gpus_per_node(job, instance)),
        _divisors(model.num_layers),
        _divisors(gpus),
        experts,
    ):
        inner = tensor * pipeline * context
        if gpus % inner or batch % (gpus // inner) or gpus % (expert * pipeline):
            continue
        for virtual in _divisors(model.num_layers // pipeline) if pipeline > 1 else [1]:
            yield changed(
                job,
                "parallelism",
                tensor=tensor,
                pipeline=pipeline,
                virtual_pipeline=virtual if virtual > 1 else None,
                context=context,
                expert=expert,
                expert_tensor=1 if model.num_experts else None,
                sequence_parallel=True,
                distributed_optimizer=True,
            )


def _microbatches(
    job: MegatronRun, model: ModelShape, instance: InstanceType
) -> Iterator[Candidate]:
    """Yield what fits of each size of microbatch, with and without recomputation.

    A larger microbatch never needs less memory, so the first that does not fit ends the row. A
    sequence is split only where a whole one is the microbatch: half of two is as much work as one.
    """
    data = job_gpus(job, instance) // job.parallelism.model_gpus
    sizes = _divisors(job.training.global_batch_size // data)
    for again in _RECOMPUTE:
        for size in sizes if job.parallelism.context == 1 else (1,):
            variant = changed(
                job,
                "training",
                micro_batch_size=size,
                recompute=again,
                recompute_method="uniform" if again == "full" else None,
                recompute_layers=1 if again == "full" else None,
            )
            found = evaluate(variant, model, instance)
            if found is not None and not fits(found.memory):
                break
            if found is not None:
                yield found


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0]
