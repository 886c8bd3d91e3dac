"""The decoder and its loss against transformers' and torch's own."""

import pytest

from tests.programs.trainer_files import python_says

pytestmark = pytest.mark.programs

# Weights of a random model of transformers', saved as Hugging Face does, then read by ours.
LOGITS = """
import json, sys, tempfile
from pathlib import Path
import torch, transformers
from torch import nn
from megatron_eks.programs.trainer.model import Decoder
from megatron_eks.programs.trainer.shape import read_model
from megatron_eks.programs.trainer.weights import check_pretrained, load_pretrained

kind, tied, scaled = sys.argv[1], sys.argv[2] == "tied", sys.argv[3] == "scaled"
rope = {"rope_type": "default", "rope_theta": 500000.0}
if scaled:
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
settings = dict(vocab_size=260, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
    max_position_embeddings=4096, rope_parameters=rope, tie_word_embeddings=tied,
    sliding_window=None, attn_implementation="eager")
if kind == "Llama":
    del settings["sliding_window"]
torch.manual_seed(0)
config = getattr(transformers, kind + "Config")(**settings)
theirs = getattr(transformers, kind + "ForCausalLM")(config).eval()
findings = []
preset = {"preset": "llama-3.1-8b"} if scaled else {}
model = read_model({**preset, "num_layers": 3, "hidden_size": 64, "ffn_hidden_size": 128,
    "num_attention_heads": 4, "num_query_groups": 2, "kv_channels": 16, "vocab_size": 260,
    "max_position_embeddings": 4096, "rotary_base": 500000,
    "untie_embeddings_and_output_weights": not tied}, base_weights=True, findings=findings)
with tempfile.TemporaryDirectory() as directory:
    theirs.save_pretrained(directory, max_shard_size="100KB")
    files = len(list(Path(directory).glob("*.safetensors")))
    with torch.device("meta"):
        ours = Decoder(model)
    found = [str(finding) for finding in check_pretrained(ours, model, Path(directory))]
    ours.to_empty(device="cpu")
    load_pretrained(ours, Path(directory))
ours.eval()
tokens = torch.randint(0, 260, (2, 1500))
with torch.no_grad():
    expected, head = theirs(tokens).logits, ours.lm_head or ours.model.embed_tokens
    logits = nn.functional.linear(ours.model(tokens), head.weight)
    loss = ours(tokens[:, :-1], tokens[:, 1:])
    shifted, labels = expected[:, :-1].reshape(-1, 260), tokens[:, 1:].reshape(-1)
    wanted = nn.functional.cross_entropy(shifted, labels)
print(json.dumps({"findings": found, "files": files, "off": float((expected - logits).abs().max()),
    "size": float(expected.abs().max()), "loss_off": float((loss - wanted).abs())}))
"""

LOSS = """
import json
import torch
from torch.nn import functional
from megatron_eks.programs.trainer import loss as trainer_loss
trainer_loss._PIECE_TOKENS = 7
torch.manual_seed(0)
states = torch.randn(3, 10, 16, requires_grad=True)
weight = torch.randn(50, 16, requires_grad=True)
labels = torch.randint(0, 50, (3, 10))
expected = functional.cross_entropy((states @ weight.t()).reshape(-1, 50), labels.reshape(-1))
expected_gradients = torch.autograd.grad(3 * expected, (states, weight))
loss = trainer_loss.linear_cross_entropy(states, weight, labels)
gradients = torch.autograd.grad(3 * loss, (states, weight))
print(json.dumps([float((a - b).abs().max()) for a, b in
    zip((expected, *expected_gradients), (loss, *gradients))]))
"""

GPT = """
import json
import torch
from megatron_eks.programs.trainer.model import Decoder
from megatron_eks.programs.trainer.shape import read_model
from megatron_eks.programs.trainer.weights import initialize
model = read_model({"preset": "gpt-7b", "num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 128,
    "num_attention_heads": 4, "num_query_groups": 4, "kv_channels": 16, "vocab_size": 260,
    "max_position_embeddings": 32}, base_weights=False, findings=[])
results = []
for recompute in (False, True):
    decoder = Decoder(model, recompute=recompute)
    initialize(decoder, model, seed=1)
    torch.manual_seed(2)
    tokens = torch.arange(66).reshape(2, 33)
    loss = decoder(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    norm = sum(float(entry.grad.square().sum()) for entry in decoder.parameters())
    results.append([float(loss), norm, len(list(decoder.parameters()))])
print(json.dumps(results))
"""


@pytest.mark.parametrize(
    ("kind", "tied", "scaled"),
    [
        ("Llama", "untied", "scaled"),
        pytest.param("Llama", "tied", "plain", marks=pytest.mark.long),
        pytest.param("Mistral", "untied", "plain", marks=pytest.mark.long),
    ],
)
def test_logits_are_those_of_transformers(programs_python, kind, tied, scaled):
    """Weights from Hugging Face mean the same model here: names, rotation, scaling."""
    found = python_says(programs_python, LOGITS, kind, tied, scaled)
    assert found["findings"] == []
    assert found["files"] > 1
    assert found["size"] > 0.1
    assert found["off"] < 1e-5
    assert found["loss_off"] < 1e-5


def test_loss_in_pieces_is_cross_entropy(programs_python):
    """Value and both gradients, with a last piece that is shorter than the others."""
    assert max(python_says(programs_python, LOSS)) < 1e-5


def test_gpt_drops_the_same_when_recomputed(programs_python):
    """Learned positions, biases and dropout; recomputing a layer changes nothing."""
    plain, recomputed = python_says(programs_python, GPT)
    assert plain == pytest.approx(recomputed, rel=1e-6)
    assert plain[0] == pytest.approx(5.56, abs=0.1)
    # Two embeddings, two layers of 16, and the last norm's two.
    assert plain[2] == 2 + 2 * 16 + 2
