"""What the pods of each kind run: program, arguments, files, and what they get of their nodes."""

import json
from pathlib import Path

import pytest

from megatron_eks.config.load import read_mapping
from megatron_eks.config.outputs import read_outputs
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.job import JobPlan
from megatron_eks.plan.jobs.table import KINDS, plan_job
from tests.plan.conftest import changed

ROOT = Path(__file__).parents[2]
PROGRAMS = "/opt/megatron-eks/programs"


@pytest.fixture
def plan(cluster):
    """Plan a shipped job with changes, on the shipped cluster."""

    def planned(name: str, **changes: str) -> JobPlan:
        text = changed((ROOT / "jobs" / f"{name}.yaml").read_text(), changes)
        job, findings = parse_job(read_mapping(text, "job.yaml"))
        assert job is not None, findings
        outputs, _ = read_outputs(None, "techpulse", {"megatron": "m:1", "fsdp": "f:1"})
        return plan_job(job, cluster(), outputs.images)

    return planned


def test_every_kind_has_a_shipped_job(plan):
    """What the file format knows can be read as an example, and is planned."""
    shipped = [plan(file.stem) for file in (ROOT / "jobs").iterdir()]
    assert {job.kind for job in shipped} == set(KINDS)


def test_fsdp_reads_the_job_files_own_blocks(plan):
    """The program takes model, training, data and checkpoint as they stand there."""
    job = plan("fsdp-llama-2-7b")
    assert job.command == (
        *("python3", f"{PROGRAMS}/record.py", "/shared/logs/fsdp-llama-2-7b", "7"),
        *("torchrun", f"{PROGRAMS}/train_fsdp.py"),
    )
    assert job.args[:2] == ("--config", "/etc/megatron-eks/train_fsdp.json")
    config = json.loads(job.files["train_fsdp.json"])
    assert set(config) == {"model", "training", "data", "checkpoint", "runtime"}
    assert config["model"] == "llama-2-7b"
    assert config["training"]["max_steps"] == 100
    assert config["data"] == {
        "dataset": "allenai/c4",
        "configuration": "en",
        "tokenizer": "hf-internal-testing/llama-tokenizer",
        "num_workers": 2,
    }


def test_fsdp_has_no_variable_of_megatron(plan):
    """One connection would keep FSDP's communication behind its kernels."""
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in plan("fsdp-llama-2-7b").env
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in plan("bridge-cpt-techpulse").env


def test_a_token_is_a_file_that_hugging_face_finds(plan):
    """Never a variable: those end in logs and in `kubectl describe`."""
    secret = {"tokenizer: hf-internal-testing/llama-tokenizer": "tokenizer: x\ntoken_secret: hf"}
    job = plan("fsdp-llama-2-7b", **secret)
    (path,) = (file.path for file in job.secrets)
    assert path == "/var/run/secrets/huggingface/token"
    assert path == job.env["HF_TOKEN_PATH"]


def test_hybrid_sharding_holds_more_of_the_model(plan):
    """A replica a node instead of one in all."""
    full = plan("fsdp-llama-2-7b").training
    hybrid = plan("fsdp-llama-2-7b", **{"sharding: full": "sharding: hybrid"}).training
    assert hybrid.memory.per_gpu_bytes > full.memory.per_gpu_bytes


def test_ddp_tells_torchrun_what_an_operator_would(plan):
    """The rank comes from the index that Kubernetes gives each pod, the master has index 0."""
    job = plan("ddp-llama-3-2-1b")
    assert (job.workload, job.nodes) == ("indexed_job", 2)
    assert job.command[4:] == (
        "torchrun",
        "--nnodes=2",
        "--nproc-per-node=8",
        "--node-rank=$(JOB_COMPLETION_INDEX)",
        "--master-addr=ddp-llama-3-2-1b-0.ddp-llama-3-2-1b",
        "--master-port=23456",
        f"{PROGRAMS}/train_ddp.py",
    )


def test_bridge_runs_a_recipe_with_the_files_values(plan):
    """Everything but the recipe's name goes through one file."""
    job = plan(
        "bridge-cpt-techpulse", **{"overrides: {}": "overrides: {ddp.grad_reduce_in_fp32: true}"}
    )
    assert job.args[:4] == (
        *("--recipe", "llama31_8b_pretrain_config"),
        *("--config", "/etc/megatron-eks/train_bridge.json"),
    )
    config = json.loads(job.files["train_bridge.json"])
    assert config["overrides"] == {"ddp.grad_reduce_in_fp32": True}
    assert config["parallelism"]["tensor"] == 4


def test_data_preparation_runs_beside_the_add_ons(plan):
    """Half of a system node, with a worker for each of its CPUs."""
    job = plan("data-prep-techpulse")
    assert (job.pool, job.gpus, job.workload) == (None, 0, "job")
    assert (job.resources.cpu_millis, job.resources.memory_mib) == (4000, 8192)
    assert " ".join(job.args) == (
        "--input /shared/data/techpulse.jsonl --output-prefix /shared/data/megatron/techpulse "
        "--tokenizer /shared/tokenizer/llama-3.1-8b --json-key text --append-eod "
        "--on-bad-line fail --workers 4 --shards 1 --resume"
    )


def test_shards_are_pods_with_an_index(plan):
    """Each takes the part that its index names."""
    job = plan(
        "data-prep-techpulse",
        **{"image: megatron": "image: megatron\npool: p4d\nshards: 3\njson_keys: [title, text]"},
    )
    assert (job.workload, job.nodes, job.gpus) == ("indexed_job", 3, 0)
    assert job.command[4:] == ("python3", f"{PROGRAMS}/prepare_data.py")
    assert job.args.count("--json-key") == 2
    assert job.backoff_limit == 9
    assert job.resources.efa == 0


def test_fetch_is_given_its_token_as_a_file(plan):
    """The program is told where it is."""
    job = plan("fetch-llama-3-1-8b")
    assert " ".join(job.args) == (
        "--model meta-llama/Llama-3.1-8B --directory /shared/models/llama-3.1-8b "
        "--token-file /var/run/secrets/huggingface/token"
    )
    assert [(file.secret, file.key) for file in job.secrets] == [("hugging-face", "token")]


def test_conversion_gets_the_memory_of_the_weights_twice(plan):
    """On a GPU node, because no system node has that much; without any of its GPUs."""
    job = plan("import-llama-3-1-8b")
    assert (job.pool.name, job.gpus) == ("p4d", 0)
    assert job.resources.memory_mib == 38 * 1024
    assert job.args[:2] == ("--direction", "import")


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({}, ("--pass-busbw-gb-s", "60")),
        ({"nodes: 2": "nodes: 2\npass_busbw_gb_s: 42.5"}, ("--pass-busbw-gb-s", "42.5")),
        # The catalogue's mark is for the network between whole nodes.
        ({"nodes: 2": "nodes: 1"}, ()),
        ({"nodes: 2": "nodes: 2\ngpus_per_node: 4"}, ()),
    ],
)
def test_all_reduce_is_measured_against_a_mark(plan, changes, mark):
    """A second try would not be faster, so there is none."""
    job = plan("nccl-test-p4d", **changes)
    assert job.args == ("--min-bytes", "8", "--max-bytes", "17179869184", *mark)
    assert not job.restarts_in_place
    assert job.backoff_limit == 1


@pytest.mark.parametrize(
    ("nodes", "gpus", "efa", "hugepages"),
    [(2, 8, 4, 5120), (1, 8, 4, 5120), (2, 4, 2, 2560), (2, 1, 1, 640), (1, 4, 0, 0)],
)
def test_a_part_of_a_node_takes_its_part_of_everything(plan, nodes, gpus, efa, hugepages):
    """So that jobs can share a node; a job that stays on one needs no network card."""
    text = f"nodes: {nodes}\ngpus_per_node: {gpus}"
    resources = plan("fsdp-llama-2-7b", **{"nodes: 2": text}).resources
    assert (resources.gpus, resources.efa, resources.hugepages_mib) == (gpus, efa, hugepages)
    assert resources.cpu_millis == 93690 * gpus // 8 // 1000 * 1000
    assert resources.memory_mib == 984 * 1024 * gpus // 8
    assert resources.shm_mib == 128 * 1024 * gpus // 8


def test_jobs_that_share_a_node_fit_it_together(plan):
    """Two halves are no more than the whole."""
    half = plan("fsdp-llama-2-7b", **{"nodes: 2": "nodes: 2\ngpus_per_node: 4"})
    whole = plan("fsdp-llama-2-7b").resources
    for name in ("cpu_millis", "memory_mib", "gpus", "efa", "hugepages_mib", "shm_mib"):
        assert 2 * getattr(half.resources, name) <= getattr(whole, name), name
    assert half.processes_per_node == 4
    assert half.gpus == 8


def test_elastic_ranks_meet_at_the_first_worker(plan):
    """And are counted for restarts as if all of them were there."""
    elastic = (
        "sharding: full\nruntime:\n  rendezvous: c10d\n  elastic: {min_nodes: 1, max_nodes: 2}"
    )
    job = plan("fsdp-llama-2-7b", **{"sharding: full": elastic, "nodes: 2": "nodes: 1"})
    assert job.rendezvous is not None
    assert (job.rendezvous.min_nodes, job.rendezvous.max_nodes) == (1, 2)
    assert (job.workers, job.backoff_limit) == (1, 7)


def test_etcd_is_named_by_its_service(plan):
    """Without bounds as many nodes as the file says."""
    job = plan(
        "fsdp-llama-2-7b", **{"sharding: full": "sharding: full\nruntime: {rendezvous: etcd}"}
    )
    assert job.rendezvous is not None
    assert job.rendezvous.backend == "etcd"
    assert job.command[4:7] == ("python3", f"{PROGRAMS}/etcd_run_id.py", "torchrun")
    assert (job.rendezvous.min_nodes, job.rendezvous.max_nodes) == (2, 2)


@pytest.mark.parametrize(
    "name",
    ["megatron-cpt-techpulse", "bridge-cpt-techpulse", "fsdp-llama-2-7b", "ddp-llama-3-2-1b"],
)
def test_every_training_is_told_where_its_copies_go(plan, name):
    """Megatron-LM's starter as an option before Megatron's own, the others in their file."""
    uri = f"s3://checkpoints/{name}"
    job = plan(name, **{"checkpoint:\n": f"checkpoint:\n  s3_uri: {uri}\n"})
    if job.kind == "megatron":
        place = job.args.index("--s3-uri")
        assert job.args[place + 1] == uri
        assert place < job.args.index("--")
        assert "--s3-uri" not in plan(name).args
    else:
        [file] = job.files.values()
        assert json.loads(file)["checkpoint"]["s3_uri"] == uri


def test_nodes_know_their_network_and_where_they_meet(plan):
    """A job of several nodes has EFA to count, and a place to show that each node lives."""
    expected = ("--expect-efa", "4", "--expect-gpu-direct", "--heartbeats")
    for name in ("megatron-gpt-7b", "fsdp-llama-2-7b", "ddp-llama-3-2-1b", "bridge-cpt-techpulse"):
        job = plan(name)
        place = job.args.index("--expect-efa")
        assert job.args[place : place + 5] == (*expected, f"{job.log_directory}/heartbeats")


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_DEBUG: WARN",
        "NCCL_DEBUG_SUBSYS: GRAPH",
        "NCCL_DEBUG_FILE: /shared/nccl.log",
        "NCCL_NET: Socket",
        "NCCL_NET_PLUGIN: spcx",
        "FI_PROVIDER: tcp",
        "FI_EFA_IFACE: rdmap0s6",
    ],
)
def test_what_a_job_file_hides_is_not_looked_for(plan, line):
    """The start-up guard would end ranks that do as they were told."""
    args = plan("fsdp-llama-2-7b", **{"nodes: 2": f"nodes: 2\nruntime: {{env: {{{line}}}}}"}).args
    assert "--heartbeats" in args
    assert "--expect-efa" not in args


def test_one_node_has_no_network(plan):
    """Its ranks talk over NVLink, and no other node waits for them."""
    args = plan("fsdp-llama-2-7b", **{"nodes: 2": "nodes: 1"}).args
    assert args == ("--config", "/etc/megatron-eks/train_fsdp.json")
