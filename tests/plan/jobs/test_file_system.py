"""What a job reads: whether others put it there, where this job sees it, and in its own words."""

import pytest

from tests.plan.jobs.test_claims import CLUSTER, RUN, findings, job

TWO_ZONES = CLUSTER.replace(
    "    max_nodes: 2\n",
    "    max_nodes: 2\n"
    "  - {name: far, instance_type: p4d.24xlarge, availability_zone: us-east-2a, max_nodes: 2}\n",
).replace("    capacity_gib: 1200", "    per_zone: true\n    capacity_gib: 1200")


@pytest.mark.parametrize(
    ("reader", "writer", "wanted"),
    [
        (
            job("import-llama-3-1-8b", source="/shared/models/llama_3.1_8b"),
            job("fetch-llama-3-1-8b"),
            "use /shared/models/llama-3.1-8b",
        ),
        (
            job("data-prep-techpulse", tokenizer="/shared/tokenizers/llama-3.1-8b"),
            job("fetch-tokenizer"),
            "use /shared/tokenizer/llama-3.1-8b",
        ),
        (
            job("data-prep-techpulse", tokenizer="/shared/tokenizer"),
            job("fetch-tokenizer"),
            "use /shared/tokenizer/llama-3.1-8b",
        ),
        (
            job("export-techpulse", source="/shared/checkpoints/techpulse-brigde"),
            job("bridge-cpt-techpulse"),
            "use /shared/checkpoints/techpulse-bridge",
        ),
        (
            job(RUN, data={"prefix": "/shared/data/techpulse_text_document"}),
            job("data-prep-techpulse"),
            "use /shared/data/megatron/techpulse_text_document",
        ),
    ],
)
def test_a_path_that_differs_by_a_slip(tmp_path, reader, writer, wanted):
    """The files are there, beside the place where the job looks for them."""
    (line,) = findings(tmp_path, reader, writer)
    assert line.startswith("warning MEKS-0391 job0.yaml")
    assert line.endswith(wanted)


@pytest.mark.parametrize(
    "source",
    [
        "/shared/models/llama-3.1-9b",  # another number, another model
        "/shared/models/mistral",
        "/shared/models/llama-3.1-8b/original",  # a folder of what was fetched
    ],
)
def test_a_path_that_means_something_else(tmp_path, source):
    """What nobody makes may have been there for long."""
    reader = job("import-llama-3-1-8b", source=source)
    assert findings(tmp_path, reader, job("fetch-llama-3-1-8b")) == []


def test_files_of_another_zone(tmp_path):
    """Each zone has a file system of its own, and a job sees its pool's."""
    run = job(RUN, pool="far")
    (line,) = findings(tmp_path, run, job("import-llama-3-1-8b"), cluster=TWO_ZONES)
    assert line.startswith("warning MEKS-0392 job0.yaml")
    assert "on the file system of us-east-2b, and this job sees us-east-2a's" in line


@pytest.mark.parametrize("pool", ["p4d", "far"])
def test_files_of_the_same_zone(tmp_path, pool):
    """With its own import, each zone's job finds its weights; without zones, every job does."""
    run, weights = job(RUN, pool=pool), job("import-llama-3-1-8b", pool=pool)
    assert findings(tmp_path, run, weights, cluster=TWO_ZONES) == []


@pytest.mark.parametrize(
    ("name", "tokenizer", "model", "level"),
    [
        ("fsdp-llama-2-7b", "Qwen/Qwen2.5-7B", "llama-2-7b", "error"),
        ("fsdp-llama-2-7b", "EleutherAI/gpt-neox-20b", "llama-2-13b", "error"),
        ("megatron-gpt-7b", "/shared/tokenizer/Qwen3-8B", "gpt-7b", "error"),
        (RUN, "/shared/tokenizer/llama-2-7b-hf", "llama-3.1-8b", "warning"),
    ],
)
def test_a_tokenizer_of_another_model(tmp_path, name, tokenizer, model, level):
    """Its numbers lie outside of the embedding, or mean other words."""
    (line,) = findings(tmp_path, job(name, data={"tokenizer": tokenizer}, model=model))
    assert line.startswith(f"{level} MEKS-0389 job0.yaml")


@pytest.mark.parametrize(
    ("tokenizer", "model"),
    [
        ("/shared/tokenizer/our-own", "llama-2-7b"),
        ("/shared/tokenizer/Meta-Llama-3-8B", "llama-3.1-8b"),
        ("/shared/tokenizer/gpt2", "gpt-7b"),
        ("hf-internal-testing/llama-tokenizer", "llama-3.2-1b"),
    ],
)
def test_a_tokenizer_that_suits(tmp_path, tokenizer, model):
    """More rows than tokens do no harm, and what has an unknown name is not judged."""
    assert (
        findings(tmp_path, job("fsdp-llama-2-7b", data={"tokenizer": tokenizer}, model=model)) == []
    )


def test_the_tokenizer_is_what_a_job_fetches(tmp_path):
    """The folder's name says nothing of it."""
    fetch = job("fetch-tokenizer", tokenizer="Qwen/Qwen3-8B", directory="/shared/words")
    run = job("fsdp-llama-2-7b", data={"tokenizer": "/shared/words"})
    (line,) = findings(tmp_path, run, fetch)
    assert "/shared/words has 151669 tokens, and the model knows 32000" in line


def test_data_of_another_tokenizer(tmp_path):
    """Both are known, and have other sizes."""
    words = "/shared/tokenizer/mistral-7b-v0.3"
    ours = "/shared/tokenizer/llama-3.1-8b"
    found = findings(tmp_path, job("megatron-gpt-7b"), job("data-prep-techpulse", tokenizer=words))
    (line,) = found
    assert line.startswith("error MEKS-0389 job0.yaml")
    assert line.endswith(f"set tokenizer: {ours} in data-prep-techpulse")


def test_checkpoints_of_two_models(tmp_path):
    """The second would take up the first one's, of another shape."""
    first, second = (
        job(RUN),
        job("megatron-gpt-7b", checkpoint={"directory": "/shared/checkpoints/techpulse-cpt"}),
    )
    (line,) = findings(tmp_path, first, second)
    assert line.startswith("error MEKS-0330 job1.yaml")


def test_weights_that_fill_the_file_system(tmp_path):
    """Two models of 812 GB, and 1200 GiB for them."""
    name, folder = "meta-llama/Llama-3.1-405B", "/shared/405b"
    base = job("fetch-llama-3-1-8b", model=name, directory=folder)
    tuned = job(
        "fetch-llama-3-1-8b", name="tuned", model=f"{name}-Instruct", directory=f"{folder}-instruct"
    )
    (line,) = findings(tmp_path, base, tuned)
    assert line.startswith("warning MEKS-0379 job1.yaml")
    assert "the weights of 2 jobs take 1512 GiB of 1200" in line


def test_rights_that_no_job_needs(tmp_path):
    """The namespace may be restricted, unless a job takes the host's network."""
    cluster = f"{CLUSTER}platform: {{pod_security: privileged}}\n"
    (line,) = findings(tmp_path, job(RUN), cluster=cluster)
    assert line.startswith("warning MEKS-0283 cluster.yaml")
    host = job(RUN, runtime={"host_network": True})
    assert not any("MEKS-0283" in line for line in findings(tmp_path, host, cluster=cluster))


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (
            job(RUN, checkpoint={"pretrained": "/shared/checkpoints/ddp-llama-3-2-1b"}),
            job("ddp-llama-3-2-1b"),
        ),
        (
            job("fsdp-llama-2-7b", checkpoint={"pretrained": "/shared/checkpoints/gpt-7b"}),
            job("megatron-gpt-7b"),
        ),
        (
            job(
                "fsdp-llama-2-7b",
                checkpoint={"pretrained": "/shared/models/llama-3.1-8b"},
            ),
            job("fetch-llama-3-1-8b"),
        ),
    ],
)
def test_base_weights_in_another_form_or_of_another_model(tmp_path, reader, writer):
    """Each kind of program reads its own form, and rows of its own shape."""
    (line,) = findings(tmp_path, reader, writer)
    assert line.startswith("error MEKS-0334 job0.yaml")
    assert " checkpoint.pretrained: " in line


def test_base_weights_for_fsdp_as_they_were_fetched(tmp_path):
    """Its programs read what Hugging Face has."""
    name = "llama-3.2-1b"
    fetch = job("fetch-llama-3-1-8b", model="meta-llama/Llama-3.2-1B", directory=f"/shared/{name}")
    run = job("ddp-llama-3-2-1b", checkpoint={"pretrained": f"/shared/{name}"})
    assert findings(tmp_path, run, fetch) == []


@pytest.mark.parametrize(("interval", "warned"), [(500, False), (200_000, True)])
def test_spot_nodes_and_how_often_is_saved(tmp_path, interval, warned):
    """Two minutes' notice suffice for a small model that saves every few minutes."""
    cluster = CLUSTER.replace("max_nodes: 2", "max_nodes: 2\n    capacity: {type: spot}")
    changes = {"training": {"max_steps": 1_000_000}, "checkpoint": {"interval": interval}}
    found = findings(tmp_path, job("ddp-llama-3-2-1b", **changes), cluster=cluster)
    assert any("MEKS-0231" in line for line in found) == warned


@pytest.mark.parametrize(("uri", "warned"), [(None, True), ("s3://acme-runs/cpt", False)])
def test_checkpoints_that_go_with_their_stack(tmp_path, uri, warned):
    """A second copy in S3 outlives the file system."""
    cluster = CLUSTER.replace("storage:\n", "storage:\n  retain: false\n")
    found = findings(tmp_path, job(RUN, checkpoint={"s3_uri": uri}), cluster=cluster)
    assert [line.split(":")[0] for line in found] == ["warning MEKS-0284 cluster.yaml"] * warned


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("llama-3.2-1b", ["trains a model with num_layers 16 there - name weights of this model"]),
        ("llama-3.1-8b", []),
    ],
)
def test_base_weights_that_another_job_trains(tmp_path, model, said):
    """A run may go on from the checkpoints of another one of the same shape."""
    base = "/shared/checkpoints/first"
    first = job(RUN, name="first", model=model, checkpoint={"directory": base, "pretrained": None})
    second = job(RUN, checkpoint={"pretrained": base})
    found = [line for line in findings(tmp_path, first, second) if "MEKS-0334" in line]
    assert [words in line for words, line in zip(said, found, strict=True)] == [True] * len(said)
