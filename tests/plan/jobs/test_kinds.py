"""What the pods of each kind run: program, arguments, files, and what they get of their nodes."""

import json

import pytest

from megatron_eks.config.load import read_mapping
from megatron_eks.config.outputs import read_outputs
from megatron_eks.config.parse import parse_job
from megatron_eks.plan.jobs.job import JobPlan
from megatron_eks.plan.jobs.table import KINDS, plan_job
from tests.plan.conftest import ROOT, changed

PROGRAMS = "megatron_eks.programs"


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
    # A program of the user's is an example of its own.
    assert {job.kind for job in shipped} == set(KINDS) - {"torchrun"}


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


def test_shards_are_pods_with_an_index(plan):
    """Each takes the part that its index names."""
    job = plan(
        "data-prep-techpulse",
        **{"image: megatron": "image: megatron\npool: p4d\nshards: 3\njson_keys: [title, text]"},
    )
    assert (job.workload, job.nodes, job.gpus) == ("job", 3, 0)
    assert (job.launcher[5:], job.program) == (("python3",), ("-m", f"{PROGRAMS}.prepare_data"))
    assert job.args.count("--json-key") == 2
    assert (job.restarts, job.gang) == (3, False)
    assert job.resources.efa == 0


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
    assert (job.restarts, job.gang) == (0, True)


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
    assert (job.workers, job.most_nodes) == (1, 2)


def test_etcd_is_named_by_its_service(plan):
    """Without bounds as many nodes as the file says."""
    job = plan(
        "fsdp-llama-2-7b", **{"sharding: full": "sharding: full\nruntime: {rendezvous: etcd}"}
    )
    assert job.rendezvous is not None
    assert job.rendezvous.backend == "etcd"
    assert job.launcher[5:] == ("python3", "-m", f"{PROGRAMS}.etcd_run_id", "torchrun")
    assert (job.rendezvous.min_nodes, job.rendezvous.max_nodes) == (2, 2)


def test_saves_are_as_far_apart_as_is_best(plan):
    """Where the file leaves it to the plan."""
    job = plan("megatron-cpt-techpulse", **{"  interval: 100\n": ""})
    assert job.args[job.args.index("--save-interval") + 1] == "66"
    assert job.training.goodput.best_interval_steps == 66


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


WANDB = "runtime:\n  tracking: {wandb: {project: cpt, secret: wandb}}"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("megatron-cpt-techpulse", "runtime:"),
        ("bridge-cpt-techpulse", "overrides: {}"),
        ("ddp-llama-3-2-1b", "image: fsdp"),
    ],
)
def test_trackers_get_names_as_variables_and_keys_from_secrets(plan, name, place):
    """The key's value is in no file, argument or variable of the plan."""
    before = {"image: fsdp": "image: megatron\n", "overrides: {}": "overrides: {}\n"}
    job = plan(name, **{place: before.get(place, "") + WANDB})
    assert (job.env["WANDB_PROJECT"], job.env["WANDB_NAME"]) == ("cpt", name)
    assert (job.env["WANDB_RUN_GROUP"], job.env["WANDB_DIR"]) == (name, "/tmp")  # noqa: S108 -- in the pod
    entry = job.secret_env["WANDB_API_KEY"]
    assert (entry.secret, entry.key) == ("wandb", "token")
    words = " ".join(job.args)
    match job.kind:
        case "megatron":
            assert f"--wandb-project cpt --wandb-exp-name {name} --wandb-save-dir /tmp" in words
        case "megatron_bridge":
            (file,) = job.files.values()
            told = json.loads(file)["overrides"]
            assert (told["logger.wandb_project"], told["logger.wandb_exp_name"]) == ("cpt", name)
        case "ddp":
            assert "--track=wandb" in job.args
