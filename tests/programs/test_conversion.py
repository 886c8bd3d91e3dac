"""A tiny Llama to Megatron's form, trained there, and back: the same tensors, the same logits."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from megatron_eks.project import ROOT
from tests.charts.rendered import training_job
from tests.programs import trainer_files

pytestmark = [pytest.mark.programs, pytest.mark.long]

STEPS = ROOT / "tests/programs/bridge_tiny.py"
MODELS = ("untied", "tied")
CLOSE = 1e-5
"""Of logits in fp32 of about 2."""


@pytest.fixture(scope="module")
def root(tmp_path_factory, programs_python, tokenizer) -> Path:
    """Return a folder in which both models have gone all the way; NAME.json has what was said."""
    root: Path = tmp_path_factory.mktemp("conversion")
    (root / "job.json").write_text(json.dumps(shipped_recipe()))
    two_ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    for step, start in (("import", ()), ("train", two_ranks), ("export", ())):
        words = (programs_python, "-W", "ignore", *start, STEPS, step, root, tokenizer)
        done = subprocess.run(  # noqa: S603 -- the programs under test
            [str(word) for word in words],
            env={**trainer_files.environment(), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-8000:]
        (root / f"{step}.json").write_text(done.stdout.splitlines()[-1])
    return root


def shipped_recipe() -> dict[str, Any]:
    """Return the recipe and the blocks that the shipped job's pods read."""
    job = training_job(name="bridge-cpt-techpulse")
    blocks = json.loads(job.files["train_bridge.json"])
    return {"recipe": job.args[job.args.index("--recipe") + 1], "blocks": blocks}


def said(root: Path, step: str, name: str) -> dict[str, Any]:
    """Return what a step said about a model."""
    found: dict[str, Any] = json.loads((root / f"{step}.json").read_text())[name]
    return found


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("step", ["import", "export"])
def test_every_tensor_is_compared(root, step, name):
    """On a machine without a GPU, by the program of the job kind `convert_checkpoint`."""
    found = said(root, step, name)
    assert found["status"] == "done", found
    # Nine of each of two layers, the embedding, the last norm; and the output, which an export
    # writes even where it is the embedding.
    assert found["compared_tensors"] == 2 * 9 + 2 + (step == "export" or name == "untied")


@pytest.mark.parametrize("name", MODELS)
def test_two_ranks_say_what_hugging_faces_model_says(root, name):
    """The checkpoint of one rank is loaded by two tensor parallel ranks, before they train."""
    assert said(root, "export", name)["before"] <= CLOSE


@pytest.mark.parametrize("name", MODELS)
def test_exported_model_says_what_megatron_learned(root, name):
    """What two ranks trained and saved is one model again, in transformers."""
    losses = said(root, "train", name)["losses"]
    assert losses == sorted(losses, reverse=True)
    found = said(root, "export", name)
    assert found["moved"] > 100 * CLOSE
    assert found["after"] <= CLOSE


@pytest.mark.parametrize("name", MODELS)
def test_one_value_that_differs_is_found(root, name):
    """And a tensor that is not there."""
    assert sorted(said(root, "export", name)["damaged"]) == [
        "no tensor model.norm.weight, which Megatron has",
        "values differ, by up to 0.5",
    ]


def test_architecture_that_upstream_lacks_is_refused_in_its_words(root):
    """Before anything is converted."""
    found = json.loads((root / "import.json").read_text())["refused"]
    assert found["status"] == "check failed"
    assert "Megatron-Bridge: " in found["findings"][-1]
    assert "MixtralForCausalLM" in found["findings"][-1]
    assert not (root / "refused/megatron").exists()


def test_shipped_recipe_takes_the_workshops_values(root):
    """Megatron-Bridge's own recipe and configuration have a place of its kind for every value."""
    found = json.loads((root / "import.json").read_text())["recipe"]["shipped"]
    assert found["findings"] == []
    assert found["sequence"] == [4096, 4096]
    assert (found["steps"], found["rates"]) == ([10000, 100], [1e-5, 1e-6])
    assert found["start"] == "/shared/checkpoints/llama-3.1-8b-base"


def test_overrides_reach_the_recipe(root):
    """A word becomes a member of an enumeration, and a precision's value stands alone."""
    found = json.loads((root / "import.json").read_text())["recipe"]
    assert found["good"]["findings"] == []
    assert found["good"]["backend"] == "AttnBackend.unfused"
    assert found["good"]["reduce"] is False
    assert sorted(each.partition(": ")[0] for each in found["bad"]["findings"]) == [
        "error model.attention_backend",
        "error model.num_layer",
        "error optimizer.lr",
    ]
