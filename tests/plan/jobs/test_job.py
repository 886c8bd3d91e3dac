"""What a job's pods get: arguments, environment, resources, restarts."""

from megatron_eks.catalog.environment import POLICIES, Verdict
from megatron_eks.catalog.environment_verdicts import Context, judge
from megatron_eks.plan.jobs.job import MIB

P4DE = {"instance_type: p4d.24xlarge": "instance_type: p4de.24xlarge"}


def option(job, name):
    """Return the value after an option."""
    return job.args[job.args.index(name) + 1]


def test_options_that_only_some_jobs_have(job):
    """Each of these is absent unless its setting asks for it."""
    plan = job(
        {
            "pipeline: 1": "pipeline: 2\n  virtual_pipeline: 2",
            "recompute: selective": "recompute: full\n  recompute_method: block",
            "seed: 1234": "recompute_layers: 4",
            "prefix: /shared/data/megatron/techpulse_text_document": (
                "cache_dir: /shared/cache/x\n  blend: "
                "[{weight: 0.7, prefix: /shared/data/a}, {weight: 0.3, prefix: /shared/data/b}]"
            ),
        }
    )
    assert option(plan, "--num-virtual-stages-per-pipeline-rank") == "2"
    assert option(plan, "--recompute-method") == "block"
    assert option(plan, "--recompute-num-layers") == "4"
    assert "--recompute-modules" not in plan.args
    start = plan.args.index("--data-path") + 1
    assert plan.args[start : start + 4] == ("0.7", "/shared/data/a", "0.3", "/shared/data/b")
    assert option(plan, "--data-cache-path") == "/shared/cache/x"


def test_sequence_parallelism_needs_tensor_parallelism(job):
    """Megatron would switch it off with a warning; the plan says what will run."""
    plan = job({"tensor: 4": "tensor: 1", "recompute: selective": "recompute: full"}, on=P4DE)
    assert "--sequence-parallel" not in plan.args
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in plan.env


def test_environment_is_what_the_policy_sets(job):
    """Nothing refused, and nothing the policy does not know as set."""
    env = job().env
    bad = {Verdict.REFUSED, Verdict.NO_EFFECT}
    assert not [name for name, value in env.items() if judge(name, value, Context()).verdict in bad]
    assert {name for name in env if POLICIES[name].verdict is not Verdict.SET} == set()
    assert env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert env["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert env["TRITON_CACHE_DIR"] == "/tmp/triton"  # noqa: S108 -- a path inside the pod


def test_memory_is_compared_with_the_pools_gpu(job):
    """The same job has twice the room on p4de."""
    small, large = job().training.memory, job(on=P4DE).training.memory
    assert small.per_gpu_bytes == large.per_gpu_bytes
    assert small.capacity_bytes == (40346 - 3072) * MIB
    assert large.capacity_bytes == (81050 - 3072) * MIB


def test_model_mapping_overrides_a_preset(job):
    """A preset with changes keeps the rest of the preset."""
    changes = {"model: llama-3.1-8b": "model: {preset: llama-3.1-8b, num_layers: 16}"}
    plan = job(changes)
    assert (plan.training.model.num_layers, plan.training.model.hidden_size) == (16, 4096)
    assert option(plan, "--num-layers") == "16"
