"""The search over layouts against all layouts, tried one by one."""

from itertools import product
from pathlib import Path

import pytest

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.job import MegatronRun
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.jobs.memory import fits
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.search import evaluate, search

JOB = Path("jobs/megatron-cpt-techpulse.yaml").read_text()


def job(**changes: object) -> MegatronRun:
    """Return the shipped job with other values at its top."""
    parsed, _ = parse_job(read_mapping(JOB, "job.yaml"))
    assert isinstance(parsed, MegatronRun)
    training = parsed.training.model_copy(
        update={"global_batch_size": changes.pop("global_batch_size", 16)}
    )
    return parsed.model_copy(update={**changes, "training": training})


def brute_force(run: MegatronRun, model: ModelShape, instance: str) -> float:
    """Return the least time of any layout, every number tried in every place."""
    sizes = range(1, 9)
    experts = range(1, (model.num_experts or 1) + 1)
    best = float("inf")
    for tensor, pipeline, context, expert, micro, recompute in product(
        sizes, sizes, sizes, experts, range(1, 17), ("none", "selective", "full")
    ):
        for virtual in range(1, model.num_layers // pipeline + 1):
            if pipeline == 1 and virtual > 1:
                break
            parallelism = run.parallelism.model_copy(
                update={
                    "tensor": tensor,
                    "pipeline": pipeline,
                    "virtual_pipeline": virtual,
                    "context": context,
                    "expert": expert,
                    "expert_tensor": 1 if model.num_experts else None,
                    "sequence_parallel": True,
                }
            )
            if 8 % (tensor * pipeline * context):
                break
            training = run.training.model_copy(
                update={"micro_batch_size": micro, "recompute": recompute}
            )
            option = run.model_copy(update={"parallelism": parallelism, "training": training})
            found = evaluate(option, model, INSTANCES[instance])
            if found is not None and fits(found.memory):
                best = min(best, found.speed.step_seconds)
    return best


@pytest.mark.parametrize(
    ("model", "instance"),
    [
        ("llama-3.2-1b", "p4d.24xlarge"),
        ("llama-3.1-8b", "p4d.24xlarge"),
        ("llama-3.1-8b", "g6e.48xlarge"),
        ("mixtral-8x7b", "p5en.48xlarge"),
    ],
)
def test_the_best_is_the_best_of_all(model, instance):
    """Nothing that the search leaves out is faster."""
    run, shape = job(model=model, nodes=1), PRESETS[model]
    found = search(run, shape, INSTANCES[instance])
    assert found[0].speed.step_seconds == pytest.approx(brute_force(run, shape, instance))


def test_order_and_room():
    """The fastest first, and none that would not run."""
    run = job(nodes=8, model="llama-3.1-70b", global_batch_size=512)
    found = search(run, model_shape(run.model), INSTANCES["p5.48xlarge"])
    assert len(found) > 100
    assert [each.rank for each in found] == sorted(each.rank for each in found)
    assert all(fits(each.memory) for each in found)


def test_nothing_is_found_where_nothing_fits():
    """405 B on one node."""
    run = job(nodes=1, model="llama-3.1-405b")
    assert search(run, model_shape(run.model), INSTANCES["p5.48xlarge"]) == []


def test_405b_on_1024_gpus_has_layouts():
    """Its 126 layers go into one, two, three or seven stages; B200 have the memory for two."""
    run = job(nodes=128, model="llama-3.1-405b", global_batch_size=1024)
    found = search(run, model_shape(run.model), INSTANCES["p6-b200.48xlarge"])
    assert {each.job.parallelism.pipeline for each in found} == {2}
