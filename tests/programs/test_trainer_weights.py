"""First weights in shards: the right rows on each rank, and never the whole model in one."""

import json
import subprocess

import pytest

from tests.programs.run_program import ROOT
from tests.programs.trainer_files import environment, python_says

pytestmark = pytest.mark.programs

# 4 x (4 x 512 x 512 + 3 x 512 x 2048) + 2 x 16384 x 512 parameters: 134 MB in fp32.
SHAPE = {
    "num_layers": 4,
    "hidden_size": 512,
    "ffn_hidden_size": 2048,
    "num_attention_heads": 8,
    "num_query_groups": 8,
    "kv_channels": 64,
    "vocab_size": 16384,
    "max_position_embeddings": 128,
}

SAVE = """
import json, sys
import torch
from safetensors.torch import save_file
from megatron_eks.programs.trainer.model import Decoder
from megatron_eks.programs.trainer.shape import read_model
model = read_model(json.loads(sys.argv[2]), base_weights=False, findings=[])
state = Decoder(model).state_dict()
save_file(state, sys.argv[1] + "/model.safetensors")
print(sum(entry.numel() * 4 for entry in state.values()))
"""

LOAD = """
import gc, json, sys
from pathlib import Path
import torch
import torch.distributed as dist
from safetensors import safe_open
from megatron_eks.programs.trainer.model import Decoder
from megatron_eks.programs.trainer.parallel import shard
from megatron_eks.programs.trainer.shape import read_model
from megatron_eks.programs.trainer.weights import initialize, load_pretrained

def private():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

def digest(model):
    return {name: float(entry.full_tensor().double().square().sum())
        for name, entry in model.named_parameters()}

dist.init_process_group("gloo")
shape = read_model(json.loads(sys.argv[2]), base_weights=False, findings=[])
with torch.device("meta"):
    model = Decoder(shape)
before, grown = private(), []
def weights(module):
    load_pretrained(module, Path(sys.argv[1]))
    grown.append(private() - before)
shard(model, torch.device("cpu"), sys.argv[3], weights)
right = True
with safe_open(sys.argv[1] + "/model.safetensors", framework="pt") as file:
    for name, entry in model.named_parameters():
        right = right and torch.equal(entry.full_tensor(), file.get_tensor(name))
initialize(model, shape, 5)
drawn = digest(model)
every = [None] * dist.get_world_size()
dist.all_gather_object(every, grown[0])
if dist.get_rank() == 0:
    print(json.dumps({"right": right, "grown": every, "drawn": drawn}))
# Groups that live on in the model's tensors go with Python itself otherwise: a thread of theirs
# that then wants Python is ended in a way that ends the process by SIGABRT.
dist.destroy_process_group()
del model, entry
gc.collect()
"""


def launch(python, tmp_path, ranks: int, sharding: str = "full"):
    """Load and draw weights on so many ranks, and return what rank 0 found."""
    (tmp_path / "load.py").write_text(LOAD)
    done = subprocess.run(  # noqa: S603 -- torchrun on the code above
        [
            *(str(python), "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc-per-node={ranks}", str(tmp_path / "load.py")),
            *(str(tmp_path), json.dumps(SHAPE), sharding),
        ],
        env={**environment(), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_rank_holds_its_part_of_the_base_weights(programs_python, tmp_path):
    """Three ranks grow by about a third of the model each, and by nothing that passes through."""
    size = python_says(programs_python, SAVE, tmp_path, json.dumps(SHAPE))
    three = launch(programs_python, tmp_path, 3)
    assert three["right"]
    assert max(three["grown"]) < 0.43 * size
    # Random weights are those of any other number of ranks.
    two = launch(programs_python, tmp_path, 2)
    assert two["right"]
    assert two["drawn"] == pytest.approx(three["drawn"], rel=1e-9)
