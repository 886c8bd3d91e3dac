"""Searches all layouts of a Megatron job for the fastest that its checks accept."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from megatron_eks.catalog.instances import InstanceType
from megatron_eks.catalog.megatron_options import OPTIONS
from megatron_eks.catalog.models import ModelShape
from megatron_eks.config.errors import has_errors
from megatron_eks.config.job import MegatronJob, MegatronRun
from megatron_eks.plan.jobs.arguments import options_among
from megatron_eks.plan.jobs.layout import MOST_IDLE, check_layout, splits
from megatron_eks.plan.jobs.models import BY_HAND, divisors
from megatron_eks.plan.jobs.resources import gpus_per_node, job_gpus
from megatron_eks.plan.jobs.training import (
    arguments,
    capacity_bytes,
    changed,
    fits,
    hardware,
    job_layout,
    megatron_batch,
)
from megatron_eks.predict.hardware import Hardware
from megatron_eks.predict.layout import EVEN, Batch, Layout, Recompute, Stages
from megatron_eks.predict.memory import MemoryEstimate, estimate
from megatron_eks.predict.settings import States, megatron_states
from megatron_eks.predict.throughput import Speed, megatron_speed

# Layouts whose times differ by less are as fast as far as the model can tell: it is off by 3 % in
# the median where it was fitted. Of them the simpler one comes first.
TIE = 0.03
# Of what can be selected, attention saves nothing with flash attention, and latent attention's
# maps, which expand what is kept, save much for little.
_RECOMPUTE: tuple[Recompute, ...] = ("none", "full")
_WITH_LATENT: tuple[Recompute, ...] = ("none", "selective", "full")
_EXPANDED = "mla_up_proj"
_ENDS = ("embedding", "loss")
# What takes longer than so many times the best so far is of no interest.
_SLOW = 1.5
REDUCED = "--grad-reduce-in-bf16"


@dataclass(frozen=True)
class Candidate:
    """One layout of a job, and what to expect of it."""

    layout: Layout
    batch: Batch
    memory: MemoryEstimate
    speed: Speed
    extra_args: tuple[str, ...] = ()
    """What Megatron must be told of its stages and gradients."""

    @property
    def complexity(self) -> tuple[int, int]:
        """How much there is to understand: what is divided, and into how many parts."""
        layout = self.layout
        divided = (layout.pipeline, layout.context, layout.virtual_pipeline, layout.expert_tensor)
        kinds = sum(size > 1 for size in divided) + bool(self.extra_args)
        kinds += self.batch.recompute == "full"
        return kinds, layout.tensor * layout.pipeline * layout.context * layout.expert


def evaluate(job: MegatronRun, model: ModelShape, instance: InstanceType) -> Candidate | None:
    """Return a job's own layout; None where it is none, or the GPU's peak is unknown."""
    found = hardware(instance)
    if found is None or has_errors(check_layout(job, model, instance)):
        return None
    layout = job_layout(job, job_gpus(job, instance))
    batch = megatron_batch(job.training, model, layout, arguments(job), found)
    states, capacity = megatron_states(arguments(job)), capacity_bytes(instance)
    memory = estimate(model, layout, batch, capacity, states)
    speed = megatron_speed(model, layout, batch, found, states=states)
    return Candidate(layout, batch, memory, speed)


def search(job: MegatronRun, model: ModelShape, instance: InstanceType) -> list[Candidate]:
    """Return the layouts that fit with room to spare, the best first.

    Model, nodes, sequence length, global batch and precision stay: what is learnt is the same.
    Where nothing fits, gradients in bf16 are tried.
    """
    found = hardware(instance)
    if found is None:
        return []
    candidates = list(_Space(job, model, instance, found).candidates())
    if not candidates and isinstance(job, MegatronJob) and REDUCED not in job.extra_args:
        less = job.model_copy(update={"extra_args": (*job.extra_args, REDUCED)})
        candidates = [
            replace(each, extra_args=(REDUCED, *each.extra_args))
            for each in _Space(less, model, instance, found).candidates()
        ]
    if not candidates:
        return []
    least = min(each.speed.step_seconds for each in candidates)

    def rank(each: Candidate) -> tuple[int, tuple[int, int], float, int]:
        slower = int(math.log(each.speed.step_seconds / least) / math.log1p(TIE))
        return slower, each.complexity, each.speed.step_seconds, each.memory.per_gpu_bytes

    return sorted(candidates, key=rank)


def as_job(job: MegatronRun, each: Candidate) -> MegatronRun:
    """Return a job with a candidate's layout."""
    layout, batch = each.layout, each.batch
    found = changed(
        job,
        "parallelism",
        tensor=layout.tensor,
        pipeline=layout.pipeline,
        virtual_pipeline=layout.virtual_pipeline if layout.virtual_pipeline > 1 else None,
        context=layout.context,
        expert=layout.expert,
        expert_tensor=layout.expert_tensor if layout.expert > 1 else None,
        sequence_parallel=True,
        distributed_optimizer=True,
    )
    again = batch.recompute == "full"
    found = changed(
        found,
        "training",
        micro_batch_size=batch.micro_batch_size,
        recompute=batch.recompute,
        recompute_method="uniform" if again else None,
        recompute_layers=1 if again else None,
    )
    if not isinstance(job, MegatronJob):
        return found
    words = (*_without_stages(job.extra_args), *each.extra_args)
    return found.model_copy(update={"extra_args": words})


def _without_stages(words: Sequence[str]) -> tuple[str, ...]:
    kept = (
        option
        for _, option in options_among(words)
        if OPTIONS.get(option[0].partition("=")[0]) not in BY_HAND
    )
    return tuple(word for option in kept for word in option)


@dataclass(frozen=True)
class _Space:
    """All layouts of one job."""

    job: MegatronRun
    model: ModelShape
    instance: InstanceType
    hardware: Hardware
    best: list[float] = field(default_factory=lambda: [math.inf])
    """The least time so far."""

    def candidates(self) -> Iterator[Candidate]:
        """Yield what fits."""
        job, model = self.job, self.model
        words = _without_stages(arguments(job))
        states, capacity = megatron_states(words), capacity_bytes(self.instance)
        own = job_layout(job.model_copy(update={"extra_args": words}) if words else job, 1)
        for layout, virtuals, extra in self._layouts(own):
            training = job.training.model_copy(
                update={"micro_batch_size": 1, "recompute": "full", "recompute_layers": None}
            )
            batch = megatron_batch(training, model, layout, words, self.hardware)
            if not fits(estimate(model, layout, batch, capacity, states, ends=True)):
                continue
            for virtual in virtuals:
                shape = replace(layout, virtual_pipeline=virtual)
                yield from self._microbatches(shape, batch, capacity, states, extra)

    def _layouts(self, own: Layout) -> Iterator[tuple[Layout, list[int], tuple[str, ...]]]:
        """Yield layouts of one chunk a stage, the numbers of chunks, and what to tell Megatron."""
        job, model = self.job, self.model
        gpus, node = job_gpus(job, self.instance), gpus_per_node(job, self.instance)
        length, batch = job.training.sequence_length, job.training.global_batch_size
        tensors = [size for size in divisors(node) if splits(model, size)]
        experts = divisors(model.num_experts) if model.num_experts else [1]
        for tensor, context, pipeline in product(tensors, divisors(gpus), divisors(gpus)):
            inner = tensor * pipeline * context
            if gpus % inner or batch % (gpus // inner) or length % (tensor * context):
                continue
            if context > 1 and length % (2 * context):
                continue
            for stages, virtuals, extra in self._stages(pipeline):
                for expert, divided in product(experts, {1, tensor} if model.num_experts else {1}):
                    if gpus % (expert * divided * pipeline) or model.expert_width % divided:
                        continue
                    if divided > 1 and (model.add_bias_linear or expert == 1):
                        continue
                    layout = replace(
                        own,
                        tensor=tensor,
                        pipeline=pipeline,
                        context=context,
                        data=gpus // inner,
                        virtual_pipeline=1,
                        sequence_parallel=tensor > 1,
                        distributed_optimizer=True,
                        expert=expert,
                        expert_tensor=divided,
                        stages=stages,
                    )
                    yield layout, virtuals, extra

    def _stages(self, pipeline: int) -> Iterator[tuple[Stages, list[int], tuple[str, ...]]]:
        """Yield how so many stages share the layers: evenly, or else with less at the ends."""
        layers = self.model.num_layers
        if pipeline == 1:
            yield EVEN, [1], ()
        elif layers % pipeline == 0:
            yield EVEN, divisors(layers // pipeline), ()
        elif isinstance(self.job, MegatronJob) and pipeline <= layers:
            # Embedding and loss count as a layer each, or the ends have what is left.
            if (layers + 2) % pipeline == 0:
                words = tuple(f"--account-for-{end}-in-pipeline-split" for end in _ENDS)
                yield Stages(embedding=True, loss=True), divisors((layers + 2) // pipeline), words
                return
            most = -(-layers // pipeline)
            ends = layers - most * (pipeline - 2)
            # Evenly, or with as little as can be where loss and further tokens are predicted.
            for first in sorted({-(-ends // 2), min(most, ends - 1)} if ends > 1 else ()):
                words = (
                    *("--decoder-first-pipeline-num-layers", str(first)),
                    *("--decoder-last-pipeline-num-layers", str(ends - first)),
                )
                yield Stages(first=first, last=ends - first), [1], words

    def _microbatches(
        self, layout: Layout, batch: Batch, capacity: int, states: States, extra: tuple[str, ...]
    ) -> Iterator[Candidate]:
        """Yield what fits of each size of microbatch, with and without recomputation.

        A larger microbatch never needs less memory, so the first that does not fit ends the row. A
        sequence is split only where a whole one is the microbatch: half of two is as much work as
        one.
        """
        whole = self.job.training.global_batch_size // layout.data
        sizes = divisors(whole) if layout.context == 1 else [1]
        most, slow = 0, set[int]()
        latent = self.model.multi_latent_attention and isinstance(self.job, MegatronJob)
        for again, size in product(_WITH_LATENT if latent else _RECOMPUTE, sizes):
            batches = whole // size
            # What fits as it is is never faster when more is computed again; what is slow neither.
            if again != "none" and (size <= most or size in slow):
                continue
            if layout.virtual_pipeline > 1 and batches % layout.pipeline:
                continue
            waits = (layout.pipeline - 1) / layout.virtual_pipeline
            if waits > (waits + batches) * MOST_IDLE:
                continue
            option = replace(
                batch,
                micro_batch_size=size,
                microbatches=batches,
                recompute=again,
                recompute_method="uniform" if again == "full" else None,
                recompute_layers=1,
                modules=frozenset({_EXPANDED} if again == "selective" else ()),
            )
            told = ("--recompute-modules", _EXPANDED) if again == "selective" else ()
            speed = megatron_speed(self.model, layout, option, self.hardware, states=states)
            if speed.step_seconds > _SLOW * self.best[0]:
                slow.add(size)
                continue
            memory = estimate(self.model, layout, option, capacity, states, ends=True)
            if not fits(memory):
                continue
            most = size
            self.best[0] = min(self.best[0], speed.step_seconds)
            yield Candidate(layout, option, memory, speed, (*extra, *told))
