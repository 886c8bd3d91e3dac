"""The search over layouts against all layouts, tried one by one."""

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from megatron_eks.catalog.instances import INSTANCES
from megatron_eks.catalog.models import PRESETS, ModelShape
from megatron_eks.config.architecture import ModelSpec
from megatron_eks.config.errors import has_errors
from megatron_eks.config.job import MegatronRun
from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.jobs.layout import check_layout
from megatron_eks.plan.jobs.models import model_shape
from megatron_eks.plan.jobs.search import REDUCED, TIE, as_job, evaluate, search
from megatron_eks.plan.jobs.training import fits

# deepseek-ai/DeepSeek-V3, config.json.
_DEEPSEEK: dict[str, Any] = {
    "num_layers": 61,
    "hidden_size": 7168,
    "ffn_hidden_size": 18432,
    "num_attention_heads": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 131072,
    "swiglu": True,
    "num_experts": 256,
    "moe_router_topk": 8,
    "moe_ffn_hidden_size": 2048,
    "moe_shared_expert_intermediate_size": 2048,
    "moe_layer_freq": (0, 0, 0, *(1,) * 58),
    "mtp_num_layers": 1,
    "multi_latent_attention": True,
    "q_lora_rank": 1536,
    "v_head_dim": 128,
}

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
            idle = any(check_layout(option, model, INSTANCES[instance]))
            found = None if idle else evaluate(option, model, INSTANCES[instance])
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
    """Nothing that the search leaves out is faster; the first is simpler, or the fastest."""
    run, shape = job(model=model, nodes=1), PRESETS[model]
    found = search(run, shape, INSTANCES[instance])
    least = min(each.speed.step_seconds for each in found)
    assert least == pytest.approx(brute_force(run, shape, instance))
    assert found[0].speed.step_seconds <= least * (1 + TIE)


def test_order_and_room():
    """The fastest first, but for ties, and none that would not run."""
    run = job(nodes=8, model="llama-3.1-70b", global_batch_size=512)
    shape, instance = model_shape(run.model), INSTANCES["p5.48xlarge"]
    found = search(run, shape, instance)
    assert len(found) > 100
    seconds = [each.speed.step_seconds for each in found]
    assert all(later >= earlier / (1 + TIE) for earlier, later in pairwise(seconds))
    for each in found[::10]:
        option = as_job(run, each)
        assert not has_errors(check_layout(option, shape, instance))
        own = evaluate(option, shape, instance)
        assert own is not None
        assert own.memory.per_gpu_bytes == each.memory.per_gpu_bytes
        assert fits(own.memory)
        assert own.speed == each.speed


def test_nothing_is_found_where_nothing_fits():
    """405 B on one node."""
    run = job(nodes=1, model="llama-3.1-405b")
    assert search(run, model_shape(run.model), INSTANCES["p5.48xlarge"]) == []


@pytest.mark.parametrize(("nodes", "batch"), [(64, 256), (128, 1024)])
def test_405b_on_h100_has_layouts(nodes, batch):
    """Its 126 layers and the two ends go into 16 stages; what is written is accepted."""
    run = job(nodes=nodes, model="llama-3.1-405b", global_batch_size=batch)
    shape, instance = model_shape(run.model), INSTANCES["p5.48xlarge"]
    best = search(run, shape, instance)[0]
    assert "--account-for-loss-in-pipeline-split" in best.extra_args
    assert not has_errors(check_layout(as_job(run, best), shape, instance))


def test_gradients_in_bf16_are_tried_where_nothing_fits():
    """77 B on two nodes; another optimizer would make fp32 gradients of them, and save nothing."""
    model = ModelSpec(preset="llama-3.1-70b", num_layers=88)
    aware = ("--use-precision-aware-optimizer",)
    run = job(nodes=2, model=model, global_batch_size=16, extra_args=aware)
    found = search(run, model_shape(run.model), INSTANCES["p5.48xlarge"])
    assert found
    assert all(REDUCED in each.extra_args for each in found)


def test_deepseek_v3_gets_little_beside_its_loss_and_maps_that_are_computed_again():
    """Its 61 layers have no even stages; what is written is accepted, and is what was predicted."""
    run = job(
        pool="p6",
        nodes=32,
        model=ModelSpec(**_DEEPSEEK),
        global_batch_size=2048,
        extra_args=("--moe-token-dispatcher-type=flex", "--moe-flex-dispatcher-backend=hybridep"),
    )
    shape, instance = model_shape(run.model), INSTANCES["p6-b200.48xlarge"]
    found = search(run, shape, instance)
    again = next(each for each in found if each.batch.recompute == "selective")
    assert "mla_up_proj" in again.extra_args
    ends = next(each for each in found if (each.layout.stages.last or 9) < 2)
    assert ends.layout.stages.first == -(-61 // ends.layout.pipeline)
    for each in (again, ends):
        option = as_job(run, each)
        assert not has_errors(check_layout(option, shape, instance))
        own = evaluate(option, shape, instance)
        assert own is not None
        assert own.speed == each.speed
        assert own.memory.per_gpu_bytes == each.memory.per_gpu_bytes
