"""Every mistake in a job file is told: with its level, its code and its place."""

from pathlib import Path

import pytest
import yaml

from megatron_eks.config.load import read_mapping
from megatron_eks.config.parse import parse_cluster, parse_job
from megatron_eks.plan.jobs.table import check_job

ROOT = Path(__file__).parents[2]
GOOD = (ROOT / "jobs" / "megatron-cpt-techpulse.yaml").read_text()
CLUSTER = (ROOT / "cluster.yaml").read_text()


def findings(text: str, cluster_text: str = CLUSTER) -> list[str]:
    """Check a job file against a cluster, as the entry points do."""
    cluster, _ = parse_cluster(read_mapping(cluster_text, "c.yaml"))
    assert cluster is not None
    document = read_mapping(text, "j.yaml")
    job, found = parse_job(document)
    if job is not None:
        found += document.locate(check_job(job, cluster))
    return [str(finding) for finding in found]


@pytest.mark.parametrize("file", sorted((ROOT / "jobs").iterdir()), ids=lambda file: file.stem)
def test_no_shipped_job_has_a_finding(file):
    """Every job of the default cluster runs on the default cluster."""
    assert findings(file.read_text()) == []


CASES = [
    case
    for table in ("job", "megatron", "option", "pytorch", "task")
    for case in yaml.safe_load(Path(__file__).with_name(f"{table}_errors.yaml").read_text())
]


def changed(case) -> str:
    """Return a shipped job file with a case's change."""
    text = (ROOT / "jobs" / f"{case['file']}.yaml").read_text() if "file" in case else GOOD
    assert case["replace"] in text
    return text.replace(case["replace"], case["by"], 1)


@pytest.mark.parametrize("case", CASES, ids=[case["by"].strip() or "removed" for case in CASES])
def test_messages(case):
    """One change to a shipped job gives exactly these findings, but for what Megatron says."""
    found = findings(changed(case))
    told = [line for line in case["expect"] if not line.startswith("megatron")]
    assert sorted(line.partition(": ")[0] for line in found) == sorted(told)
    assert case.get("remedy", "") in "\n".join(found)


def test_sentences(snapshot):
    """Each code's whole sentence, of the first case of the tables that finds it."""
    told: dict[str, str] = {}
    for case in CASES:
        if any(line.split()[1] not in told for line in case["expect"]):
            for line in findings(changed(case)):
                told.setdefault(line.split()[1], line)
    assert "\n".join(told[code] for code in sorted(told)) == snapshot


def test_a_model_without_a_preset_can_be_written_out():
    """A slip in a preset's name gets the preset alone."""
    (far,) = findings(GOOD.replace("model: llama-3.1-8b", "model: qwen3-8b"))
    assert "; or write its sizes under model (num_layers, hidden_size, ...) in" in far


def test_latent_attention_needs_no_query_groups():
    """Without a preset all sizes stand in the file, but those that it has no use for."""
    place = ROOT / "examples" / "p5-reservation"
    model = (
        "model: {num_layers: 24, hidden_size: 2048, ffn_hidden_size: 8192, "
        "num_attention_heads: 16, vocab_size: 102400, max_position_embeddings: 8192, "
        "multi_latent_attention: true, kv_lora_rank: 512}"
    )
    text = (place / "jobs" / "llama-3-1-70b.yaml").read_text()
    text = text.replace("model: llama-3.1-70b", model).replace("  virtual_pipeline: 5\n", "")
    cluster = (place / "cluster.yaml").read_text()
    assert findings(text, cluster) == []
    assert findings(text.replace("512}", "512, num_query_groups: 16}"), cluster) == []
    (said,) = findings(text.replace("512}", "512, num_query_groups: 4}"), cluster)
    assert "error MEKS-0339 j.yaml:8 model.num_query_groups: latent attention has a key" in said
    assert (
        "model.kv_lora_rank: sizes of latent attention, and multi_latent_attention is"
        in "".join(findings(text.replace("multi_latent_attention: true", "swiglu: true"), cluster))
    )


def test_the_source_guides_layout_is_refused():
    """Tensor parallel size 2 with micro batch 2 does not fit 40 GB; 4 with 1 does."""
    text = GOOD.replace("tensor: 4", "tensor: 2").replace(
        "micro_batch_size: 1", "micro_batch_size: 2"
    )
    codes = [line.split()[1] for line in findings(text)]
    assert codes == ["MEKS-0312"]


def test_the_source_guides_layout_fits_80_gb():
    """The same layout is fine on p4de."""
    text = GOOD.replace("tensor: 4", "tensor: 2").replace(
        "micro_batch_size: 1", "micro_batch_size: 2"
    )
    assert findings(text, CLUSTER.replace("p4d.24xlarge", "p4de.24xlarge")) == []


def test_precision_of_fsdp_where_gpus_have_another():
    """Only then is it the programs that do not render it."""
    text = (ROOT / "jobs" / "fsdp-llama-2-7b.yaml").read_text()
    text = text.replace("max_steps: 100", "max_steps: 100\n  precision: fp8")
    found = findings(text, CLUSTER.replace("p4d.24xlarge", "p5.48xlarge"))
    assert [line for line in found if "precision" in line] == [
        (
            "error MEKS-0108 j.yaml:13 training.precision: fp8 is not supported yet - "
            "use bf16 for now"
        )
    ]


def test_a_run_of_hours_that_saves_once_is_warned_of():
    """Until its end a failure loses all."""
    once = "interval: 100\n  keep"
    text = GOOD.replace("train_iters: 10000", "train_iters: 1000")
    assert findings(text.replace(once, "interval: 1000\n  keep")) == [
        (
            "warning MEKS-0375 j.yaml:38 checkpoint.interval: 1000 steps take about 13 hours, and "
            "a failure can lose all of them - use about 66, every 53 minutes: saves and failures "
            "then cost least"
        )
    ]
    assert findings(text) == []


def test_a_long_name_is_refused():
    """Names of the operator's Services are derived from the job's."""
    text = GOOD.replace("name: megatron-cpt-techpulse", f"name: {'a' * 51}")
    assert findings(text) == [
        (
            f"error MEKS-0106 j.yaml:5 name: '{'a' * 51}' has 51 characters - "
            "use a shorter text; its length may be at most 50"
        )
    ]


EXPERTS = "num_experts: 8, moe_router_topk: 2"


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("M*", ["its programs build transformers alone - use kind: torchrun"]),
        ("MEM", ["3 letters for 24 layers - set num_layers: 3", "add model.num_experts"]),
    ],
)
def test_patterns_of_hybrids(layers, expected):
    """A pattern describes layers that the model has, and Megatron's program builds no hybrid."""
    place = ROOT / "examples" / "p5-reservation"
    pattern = layers * 12 if len(layers) == 2 else layers
    model = (
        "model: {num_layers: 24, hidden_size: 2048, ffn_hidden_size: 8192, "
        "num_attention_heads: 16, vocab_size: 102400, max_position_embeddings: 8192, "
        f"hybrid_layer_pattern: '{pattern}', mamba_num_heads: 32}}"
    )
    text = (place / "jobs" / "llama-3-1-70b.yaml").read_text()
    text = text.replace("model: llama-3.1-70b", model).replace("  virtual_pipeline: 5\n", "")
    said = findings(text.replace("llama-3.1-8b", "own"), (place / "cluster.yaml").read_text())
    assert [line in each for line, each in zip(expected, said, strict=True)] == [True] * len(said)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("qk_pos_emb_head_dim: 32", []),
        ("qk_pos_emb_head_dim: 63", ["63 are no pairs - use an even number, such as 64"]),
        (f"{EXPERTS}, moe_layer_freq: {[0] * 24}", ["no layer has any of the 8 experts"]),
        (f"{EXPERTS}, moe_layer_freq: {[0, 1] * 12}", []),
        (f"{EXPERTS}, moe_ffn_hidden_size: 1412", ["8 does not divide moe_ffn_hidden_size 1412"]),
        (f"{EXPERTS}, moe_ffn_hidden_size: 1408", []),
    ],
)
def test_sizes_that_a_whole_model_states(size, expected):
    """Each size is judged where it is used."""
    place = ROOT / "examples" / "p5-reservation"
    model = (
        "model: {num_layers: 24, hidden_size: 2048, ffn_hidden_size: 8192, "
        "num_attention_heads: 16, vocab_size: 102400, max_position_embeddings: 8192, "
        f"multi_latent_attention: true, {size}}}"
    )
    text = (place / "jobs" / "llama-3-1-70b.yaml").read_text()
    text = text.replace("model: llama-3.1-70b", model).replace("  virtual_pipeline: 5\n", "")
    text = text.replace("/shared/tokenizer/llama-3.1-8b", "/shared/tokenizer/own")
    said = findings(text, (place / "cluster.yaml").read_text())
    assert [line in each for line, each in zip(expected, said, strict=True)] == [True] * len(said)
