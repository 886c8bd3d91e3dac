"""Options of a job file that Megatron refuses together, and their neighbours that it takes."""

from pathlib import Path

import pytest
import yaml

from tests.config.test_job_errors import ROOT, findings

CASES = yaml.safe_load(Path(__file__).with_name("pair_errors.yaml").read_text())

LATENT = """model:
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: 8192
  num_attention_heads: 16
  vocab_size: 32000
  max_position_embeddings: 4096
  normalization: RMSNorm
  swiglu: true
  add_bias_linear: false
  untie_embeddings_and_output_weights: true
  position_embedding_type: rope
  multi_latent_attention: true
  kv_lora_rank: 512
  qk_head_dim: 128
  qk_pos_emb_head_dim: 64
  v_head_dim: 128
"""


def found(case) -> list[str]:
    """Check an example with its changes, and the options added."""
    folder, _, name = case["job"].partition("/")
    place = ROOT / "examples" / folder
    text = (place / "jobs" / f"{name}.yaml").read_text()
    for old, new in case.get("change", {}).items():
        assert old in text
        text = text.replace(old, new, 1)
    said = findings(text, (place / "cluster.yaml").read_text())
    words = ", ".join(f"'{word}'" for word in case["words"].split())
    more = findings(f"{text}\nextra_args: [{words}]\n", (place / "cluster.yaml").read_text())
    return [line for line in more if line not in said and "not counted" not in line]


@pytest.mark.parametrize("case", CASES, ids=[case["words"] for case in CASES])
def test_pairs(case):
    """One line says what to write, and none where Megatron takes them."""
    assert [(case["said"] or "") in line for line in found(case)] == [True] * bool(case["said"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--rotary-interleaved", "an order of its own - remove it"),
        ("--attention-output-gate", "no gate yet"),
        ("--rope-type rope", "add --no-rope-fusion, or remove this one"),
        ("--rope-type rope --no-rope-fusion", ""),
        ("--rope-type yarn", ""),
    ],
)
def test_latent_attention(words, said):
    """Its positions are YaRN's, and have a kernel of their own."""
    change = {"model: llama-3.1-8b\n": LATENT, "sequence_length: 8192": "sequence_length: 4096"}
    lines = found({"job": "p4de/llama-3-1-8b", "change": change, "words": words})
    assert [said in line for line in lines] == [True] * bool(said)


@pytest.mark.parametrize(
    "words", ["--moe-flex-dispatcher-backend ncclep", "--moe-router-enable-expert-bias"]
)
def test_options_of_experts_that_end_a_model_without(words):
    """Nothing reads them there, and Megatron stops at them all the same."""
    lines = found({"job": "p4de/llama-3-1-8b", "words": words})
    assert [line.split()[:2] for line in sorted(lines)] == [
        ["error", "MEKS-0381"],
        ["warning", "MEKS-0339"],
    ]
