"""`meks predict`: a run on hardware that the catalogue does not have."""

import json
from typing import Any

import pytest
import yaml

from megatron_eks.__main__ import main

LLAMA: dict[str, Any] = {
    "gpu": {
        "name": "H100",
        "memory_gib": 80,
        "tflops_bf16": 989,
        "tflops_fp8": 1979,
        "nvlink_gb_s": 900,
        "network_gb_s_per_gpu": 50,
    },
    "gpus": 64,
    "gpus_per_node": 8,
    "framework": "megatron",
    "model": "llama-3.1-70b",
    "parallelism": {"tensor": 4, "pipeline": 8, "virtual_pipeline": 5},
    "training": {
        "micro_batch_size": 1,
        "global_batch_size": 128,
        "sequence_length": 8192,
        "precision": "fp8",
        "recompute": "none",
    },
}


@pytest.fixture
def predict(tmp_path, capsys):
    """Run the command on a mapping; return the exit code, stdout and stderr."""

    def run(document: dict[str, Any], output: str = "json"):
        file = tmp_path / "run.yaml"
        file.write_text(yaml.safe_dump(document))
        code = main(["predict", str(file), "-o", output])
        done = capsys.readouterr()
        return code, done.out, done.err

    return run


def test_gives_both_blocks_of_the_contract(predict):
    """The keys that programs rely on, and a speed near the published 1,602 tokens a second."""
    code, out, _ = predict(LLAMA)
    found = json.loads(out)
    assert code == 0
    assert found.keys() == {"memory", "throughput"}
    assert {"per_gpu_bytes", "capacity_bytes", "stages"} <= found["memory"].keys()
    names = {"step_seconds", "tokens_per_second_per_gpu", "tflops_per_gpu", "mfu", "low", "high"}
    assert names <= found["throughput"].keys()
    assert len(found["memory"]["stages"]) == 8
    assert found["throughput"]["tokens_per_second_per_gpu"] == pytest.approx(1602, rel=0.15)
    assert found["throughput"]["low"] < 1602 < found["throughput"]["high"]


def test_table_fits_80_columns(predict):
    """One screen: stages, the step and its parts, the range."""
    code, out, _ = predict(LLAMA, "table")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "70.6 B parameters on 64 x H100, megatron" in out
    assert "MFU" in out


def test_what_is_too_large_is_answered_and_warned_about(predict):
    """The question is what it would take, so the numbers come with a warning."""
    small = LLAMA | {"gpu": LLAMA["gpu"] | {"memory_gib": 40}}
    code, out, err = predict(small)
    memory = json.loads(out)["memory"]
    assert code == 0
    assert memory["per_gpu_bytes"] > memory["capacity_bytes"]
    assert "warning MEKS-0312" in err
    assert "GiB a GPU are missing" in err
    assert "parallelism.tensor: 8 (" in err
    assert " less)" in err


def test_fsdp_may_have_a_pipeline(predict):
    """Torchtitan's Llama 3.1 405B on 512 H100 with 96 GB took 75.9 GiB and made 47 tokens/s."""
    run = LLAMA | {
        "gpu": LLAMA["gpu"] | {"memory_gib": 96},
        "gpus": 512,
        "framework": "fsdp",
        "model": "llama-3.1-405b",
        "parallelism": {"tensor": 8, "pipeline": 8, "context": 2},
        "training": {
            "global_batch_size": 32,
            "sequence_length": 65536,
            "precision": "fp8",
            "recompute": "full",
        },
    }
    found = json.loads(predict(run)[1])
    assert found["memory"]["per_gpu_bytes"] / 1024**3 == pytest.approx(75.9, rel=0.15)
    assert found["throughput"]["low"] < 47 < found["throughput"]["high"]


def test_megatrons_own_arguments_count(predict):
    """A precision-aware optimizer with moments in bf16, and gradients in bf16."""
    words = ("--use-precision-aware-optimizer", "--exp-avg-dtype=bf16", "--exp-avg-sq-dtype=bf16")
    plain, smaller = (
        json.loads(predict(LLAMA | {"extra_args": [*arguments]})[1])["memory"]["stages"][0]
        for arguments in ((), (*words, "--main-grads-dtype", "bf16"))
    )
    assert smaller["optimizer_bytes"] * 2 == plain["optimizer_bytes"]
    assert smaller["weights_bytes"] + 2 * plain["parameters"] == plain["weights_bytes"]


def test_what_is_offloaded_is_told_of_the_host(predict):
    """Twelve bytes a parameter and more leave the GPU for the host's memory."""
    words = ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]
    assert "more of the host's memory a GPU" in predict(LLAMA | {"extra_args": words}, "table")[1]
    assert "the host's memory" not in predict(LLAMA, "table")[1]


def test_an_option_that_is_not_counted_is_told(predict):
    """The numbers stand; what they leave out is named."""
    code, out, err = predict(LLAMA | {"extra_args": ["--fine-grained-activation-offloading"]})
    assert (code, out) == predict(LLAMA)[:2]
    assert "warning MEKS-0313" in err
    assert "not counted: --fine-grained-activation-offloading" in err


@pytest.mark.parametrize(
    ("block", "change", "slower"),
    [
        ("training", {"lora_rank": 16}, False),
        ("gpu", {"power_share": 0.7}, True),
        ("gpu", {"memory_gb_s": 2000}, True),
        ("gpu", {"efa": True}, None),
    ],
)
def test_what_may_be_said_of_gpu_and_training_counts(predict, block, change, slower):
    """EFA alone says nothing of a model without experts."""
    changed = LLAMA | {block: LLAMA[block] | change}
    plain, other = (
        json.loads(predict(each)[1])["throughput"]["step_seconds"] for each in (LLAMA, changed)
    )
    assert (other > plain if slower else other < plain) if slower is not None else other == plain


def test_fsdp_takes_its_own_names(predict):
    """`train_batch_size` and `activation_checkpointing` are the job file's words for it."""
    base = {key: LLAMA[key] for key in ("gpu", "gpus", "gpus_per_node")}
    shared = base | {"framework": "fsdp", "model": "llama-3.1-8b"}
    own = shared | {"training": {"train_batch_size": 2, "activation_checkpointing": True}}
    megatron = shared | {"training": {"micro_batch_size": 2, "recompute": "full"}}
    assert predict(own)[1] == predict(megatron)[1]


def test_what_megatron_derives_may_be_left_out(predict):
    """Feed-forward size, heads' channels, query groups and positions follow from the others."""
    sizes = {"num_layers": 24, "hidden_size": 2048, "num_attention_heads": 16, "vocab_size": 50304}
    derived = {
        "ffn_hidden_size": 8192,
        "kv_channels": 128,
        "num_query_groups": 16,
        "max_position_embeddings": 2048,
    }
    base = {key: LLAMA[key] for key in ("gpu", "gpus", "gpus_per_node")}
    base |= {"training": {"sequence_length": 2048}}
    assert predict(base | {"model": sizes})[1] == predict(base | {"model": sizes | derived})[1]


def test_stages_need_not_divide_the_layers(predict):
    """Llama 3.1 405B has 126 layers; NVIDIA publishes 292 tokens a second on eight stages.

    The ends count as a layer each, if Megatron is told so; else it would refuse, and so it does.
    """
    published = LLAMA | {
        "gpus": 1024,
        "model": "llama-3.1-405b",
        "parallelism": {"tensor": 8, "pipeline": 8, "virtual_pipeline": 8, "context": 2},
        "training": LLAMA["training"] | {"global_batch_size": 512},
    }
    assert "MEKS-0308" in predict(published)[1]
    ends = [f"--account-for-{end}-in-pipeline-split" for end in ("embedding", "loss")]
    found = json.loads(predict(published | {"extra_args": ends})[1])
    speed = found["throughput"]
    assert speed["low"] < 292 < speed["high"]
    held = [stage["weights_bytes"] for stage in found["memory"]["stages"]]
    # The ends have a layer less, and a table of the vocabulary each.
    assert len(set(held[1:-1])) == 1
    assert abs(held[0] / held[1] - 1) < 0.05


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"gpus": 60}, "MEKS-0306"),
        ({"model": "llama-9"}, "MEKS-0305"),
        ({"model": {"num_layers": 2}}, "MEKS-0305"),
        ({"parallelism": {"tensor": 4, "pipeline": 8, "virtual_pipeline": 11}}, "MEKS-0308"),
        ({"parallelism": {"tensor": 64}}, "MEKS-0311"),
        ({"parallelism": {"tensor": 8, "virtual_pipeline": 5}}, "MEKS-0308"),
        ({"gpus": 24, "parallelism": {"context": 3}}, "MEKS-0310"),
        ({"parallelism": {"tensor": 8, "expert": 3}}, "MEKS-0331"),
        ({"framework": "fsdp", "parallelism": {"expert": 8}}, "MEKS-0331"),
        ({"training": {"global_batch_size": 127}}, "MEKS-0309"),
        ({"training": {"global_batch_sise": 128}}, "MEKS-0101"),
        ({"gpu": {"name": "X"}}, "MEKS-0102"),
        ({"extra_args": ["--no-such-option"]}, "MEKS-0332"),
        ({"framework": "fsdp", "parallelism": {}, "extra_args": ["--swiglu"]}, "MEKS-0339"),
    ],
    ids=str,
)
def test_what_is_no_run_is_refused(predict, change, expected):
    """Every mistake is a finding with its place, never a traceback."""
    code, out, _ = predict(LLAMA | change)
    if expected is None:
        assert code == 0
    else:
        assert code == 2
        assert expected in {finding["code"] for finding in json.loads(out)}


def test_a_missing_file_is_a_finding(capsys, tmp_path):
    """As with every other file."""
    assert main(["predict", str(tmp_path / "none.yaml")]) == 2
    assert "no such file" in capsys.readouterr().out
