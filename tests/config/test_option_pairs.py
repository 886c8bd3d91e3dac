"""Options of a job file that Megatron refuses together, and their neighbours that it takes."""

from pathlib import Path

import pytest
import yaml

from tests.config.test_job_errors import ROOT, findings

MEGATRON = "megatron"
"""Stands for what Megatron says itself: see tests/programs/test_megatron_options.py."""

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
_LATENT = {"model: llama-3.1-8b\n": LATENT, "sequence_length: 8192": "sequence_length: 4096"}
# Its positions are YaRN's, and have a kernel of their own.
_OF_LATENT = {
    "--rotary-interleaved": MEGATRON,
    "--attention-output-gate": MEGATRON,
    "--cache-mla-latents": MEGATRON,
    "--rope-type rope": MEGATRON,
    "--rope-type rope --no-rope-fusion": None,
    "--rope-type yarn": None,
}
CASES = [
    *yaml.safe_load(Path(__file__).with_name("pair_errors.yaml").read_text()),
    *(
        {"job": "p4de/llama-3-1-8b", "change": _LATENT, "words": words, "said": said}
        for words, said in _OF_LATENT.items()
    ),
]


def texts(case) -> tuple[str, str, str]:
    """Return an example with a case's changes, without and with its options, and its cluster."""
    folder, _, name = case["job"].partition("/")
    place = ROOT / "examples" / folder
    text = (place / "jobs" / f"{name}.yaml").read_text()
    for old, new in case.get("change", {}).items():
        assert old in text
        text = text.replace(old, new, 1)
    words = ", ".join(f"'{word}'" for word in case["words"].split())
    return text, f"{text}\nextra_args: [{words}]\n", (place / "cluster.yaml").read_text()


def found(case) -> list[str]:
    """Return what the plan says of the options."""
    before, after, cluster = texts(case)
    said = findings(before, cluster)
    more = findings(after, cluster)
    return [line for line in more if line not in said and "not counted" not in line]


@pytest.mark.parametrize("case", CASES, ids=[case["words"] for case in CASES])
def test_pairs(case):
    """One line says what to write, and none where Megatron takes them or refuses them itself."""
    said = case["said"] or MEGATRON
    lines = [line for line in found(case) if "has no experts" not in line]
    assert [said in line for line in lines] == [True] * (said != MEGATRON)
