"""What a job's pods get: arguments, environment, resources, restarts."""

import pytest

from megatron_eks.catalog.environment import POLICIES, Verdict
from megatron_eks.catalog.environment_verdicts import Context, judge
from megatron_eks.plan.job import MIB

P4DE = {"instance_type: p4d.24xlarge": "instance_type: p4de.24xlarge"}


def option(job, name):
    """Return the value after an option."""
    return job.args[job.args.index(name) + 1]


def test_default_arguments(job):
    """Llama 3.1 8B as facts of the model demand, on the layout of the file."""
    plan = job()
    record = ("/opt/megatron-eks/programs/record.py", plan.log_directory, "7")
    program = "/opt/megatron-eks/programs/train_megatron.py"
    assert plan.command == ("python3", *record, "torchrun", program)
    megatron = plan.args[plan.args.index("--") + 1 :]
    assert " ".join(megatron) == (
        "--use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
        "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --kv-channels 128 "
        "--max-position-embeddings 131072 --position-embedding-type rope --rotary-base 500000 "
        "--rotary-percent 1.0 --use-rope-scaling --rope-scaling-factor 8 --normalization RMSNorm "
        "--norm-epsilon 1e-05 --swiglu --disable-bias-linear "
        "--untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 "
        "--init-method-std 0.02 --transformer-impl transformer_engine --attention-backend auto "
        "--cross-entropy-loss-fusion --cross-entropy-fusion-impl native "
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 1 "
        "--context-parallel-size 1 --sequence-parallel --use-distributed-optimizer "
        "--overlap-grad-reduce --overlap-param-gather --micro-batch-size 1 "
        "--global-batch-size 512 --seq-length 4096 --train-iters 10000 --lr 1e-05 --min-lr 1e-06 "
        "--lr-decay-style cosine --lr-warmup-iters 100 --lr-decay-iters 10000 --weight-decay 0.1 "
        "--adam-beta1 0.9 --adam-beta2 0.95 --clip-grad 1 --bf16 --recompute-granularity selective "
        "--recompute-modules core_attn --seed 1234 --eval-interval 500 --eval-iters 20 "
        "--log-interval 10 --data-path /shared/data/megatron/techpulse_text_document "
        "--split 98,2,0 --tokenizer-type HuggingFaceTokenizer "
        "--tokenizer-model /shared/tokenizer/llama-3.1-8b --num-workers 8 "
        "--no-create-attention-mask-in-dataloader --save /shared/checkpoints/techpulse-cpt "
        "--load /shared/checkpoints/techpulse-cpt --override-opt_param-scheduler "
        "--pretrained-checkpoint /shared/checkpoints/llama-3.1-8b-base --save-interval 100 "
        "--ckpt-format torch_dist --ckpt-fully-parallel-load --ckpt-assume-constant-structure "
        "--async-save --use-persistent-ckpt-worker --distributed-timeout-minutes 10 "
        "--exit-signal-handler --manual-gc --manual-gc-interval 100 --log-throughput "
        "--log-timers-to-tensorboard --log-memory-to-tensorboard "
        "--tensorboard-dir /shared/logs/megatron-cpt-techpulse/tensorboard"
    )


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


def test_no_rendezvous_option(job):
    """The operator's variables say all of it."""
    assert not [word for word in job().args if "rdzv" in word or "master" in word or "node" in word]


def test_environment_is_what_the_policy_sets(job):
    """Nothing refused, and nothing the policy does not know as set."""
    env = job().env
    bad = {Verdict.REFUSED, Verdict.NO_EFFECT}
    assert not [name for name, value in env.items() if judge(name, value, Context()).verdict in bad]
    assert {name for name in env if POLICIES[name].verdict is not Verdict.SET} == set()
    assert env["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert env["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    assert env["TRITON_CACHE_DIR"] == "/tmp/triton"  # noqa: S108 -- a path inside the pod


def test_resources_are_a_whole_p4d_node(job):
    """GPU, EFA and huge pages from the catalogue; memory below what the kubelet offers."""
    resources = job().resources
    assert (resources.gpus, resources.efa, resources.hugepages_mib) == (8, 4, 5120)
    assert resources.cpu_millis == 93000
    assert resources.memory_mib == 984 * 1024
    assert resources.shm_mib < resources.memory_mib / 2


@pytest.mark.parametrize(("restarts", "limit"), [(0, 1), (3, 7)])
def test_backoff_limit_allows_the_gang_restarts(job, restarts, limit):
    """Two pods restart with each gang restart; the operator fails the job when the sum arrives."""
    assert job({"gang_restarts: 3": f"gang_restarts: {restarts}"}).backoff_limit == limit


def test_grace_period_covers_a_last_checkpoint(job):
    """112 GB at half of 586 MB/s take more than six minutes."""
    plan = job()
    assert plan.training.checkpoint_bytes == pytest.approx(112.4e9, rel=0.01)
    assert plan.grace_seconds == 480


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
