"""Host memory at a save, offloaded optimizers, and dimensions that Megatron derives."""

import pytest

from tests.config.test_job_errors import CLUSTER, ROOT, findings

FSDP = (ROOT / "jobs" / "fsdp-llama-2-7b.yaml").read_text()
FSDP = FSDP.replace("model: llama-2-7b", "model: llama-3.1-8b")
P5 = ROOT / "examples" / "p5-reservation"
LARGE = (P5 / "jobs" / "llama-3-1-70b.yaml").read_text()
LARGE = LARGE.replace("  virtual_pipeline: 5\n", "")
WHOLE = """model: {num_layers: 32, hidden_size: 4096, num_attention_heads: 32,
  ffn_hidden_size: 14336, vocab_size: 128256, max_position_embeddings: 8192, num_query_groups: 8}
"""


@pytest.mark.parametrize(("nodes", "level"), [(4, "error MEKS-0312"), (8, "")])
def test_what_a_save_stages_counts_against_the_pods_limit(nodes, level):
    """96 GB over four hosts of 32 GiB end every pod at the first save; over eight they fit."""
    cluster = CLUSTER.replace("p4d.24xlarge", "g6e.xlarge").replace("max_nodes: 2", "max_nodes: 8")
    lines = FSDP.splitlines()
    text = "\n".join(f"nodes: {nodes}" if each.startswith("nodes:") else each for each in lines)
    said = [line for line in findings(text, cluster) if "a save stages" in line]
    assert [line.partition(" j.yaml")[0] for line in said] == [level] * bool(level)


def test_an_option_that_is_not_counted_makes_no_error():
    """A layout that does not fit without it is a warning that names it."""
    text = LARGE.replace("pipeline: 4", "pipeline: 1")
    cluster = (P5 / "cluster.yaml").read_text()
    options = "extra_args: [--fine-grained-activation-offloading]\n"
    assert [line for line in findings(text, cluster) if "MEKS-0312" in line]
    said = findings(text + options, cluster)
    assert not [line for line in said if "MEKS-0312" in line]
    assert [line for line in said if "not counted: --fine-grained-activation-offloading" in line]


def test_an_offloaded_optimizer_is_counted_on_the_host():
    """It leaves the GPU, and its share decides how much."""
    text = LARGE.replace("pipeline: 4", "pipeline: 1").replace("nodes: 4", "nodes: 2")
    cluster = (P5 / "cluster.yaml").read_text()
    options = "--optimizer-cpu-offload, --use-precision-aware-optimizer"
    said = findings(f"{text}extra_args: [{options}]\n", cluster)
    assert not [line for line in said if line.startswith("error MEKS-0312")]
    asked = f"{text}runtime: {{memory_gib: 100}}\n"
    (line,) = (
        line
        for line in findings(f"{asked}extra_args: [{options}]\n", cluster)
        if line.startswith("error MEKS-0312")
    )
    assert "runtime.memory_gib: a pod may have 100.0 GiB" in line
    assert line.endswith("or more, or leave it out: it is then the GPUs' share")


def test_what_is_short_of_a_little_is_told_of_gradients_in_bf16():
    """They keep layout and speed, and are proposed where they are enough."""
    tight = (
        (ROOT / "jobs" / "megatron-cpt-techpulse.yaml")
        .read_text()
        .replace("tensor: 4", "tensor: 2")
    )
    (said,) = (line for line in findings(tight) if "MEKS-0312" in line)
    assert "parallelism.tensor: 4 (16.2 less) or extra_args: [--grad-reduce-in-bf16] (7.5" in said
    added = tight + "extra_args: [--grad-reduce-in-bf16]\n"
    assert not [line for line in findings(added) if "MEKS-0312" in line]


def test_derived_dimensions_may_be_left_out():
    """`kv_channels` is hidden_size over num_attention_heads, as Megatron takes it."""
    good = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
    assert findings(good.replace("model: llama-3.1-8b\n", WHOLE)) == []
