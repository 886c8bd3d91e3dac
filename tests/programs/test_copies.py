"""Trainers that copy checkpoints to S3: the last one too, and never at the training's cost."""

import json
import shutil

import pytest

from megatron_eks.programs.checkpoint import whole
from megatron_eks.programs.start import bridge_config
from tests.programs import saved
from tests.programs.bridge_job import JOB
from tests.programs.run_program import run
from tests.programs.s3_world import URI
from tests.programs.test_train_bridge import config as config  # noqa: PLC0414 -- a fixture
from tests.programs.trainer_files import Run

# What stands in for Megatron-Bridge, which cannot be imported without CUDA: a recipe with every
# field that the job's values go to, and a training that saves one checkpoint.
RECIPES = """
from types import SimpleNamespace

def llama31_8b_pretrain_config():
    config = SimpleNamespace()
    for name in NAMES:
        place = config
        *path, last = name.split(".")
        for part in path:
            if not hasattr(place, part):
                setattr(place, part, SimpleNamespace())
            place = getattr(place, part)
        setattr(place, last, None)
    return config
"""
PRETRAIN = """
import shutil
from pathlib import Path

def pretrain(config, forward_step_func):
    root = Path(config.checkpoint.save)
    shutil.copytree(Path(__file__).parents[3] / "iter_0000010", root / "iter_0000010")
    (root / "latest_checkpointed_iteration.txt").write_text("10")
"""


@pytest.mark.programs
@pytest.mark.parametrize(
    "program", ["train_fsdp", pytest.param("train_ddp", marks=pytest.mark.long)]
)
def test_last_checkpoint_is_in_s3_when_the_job_ends(s3, programs_python, tmp_path, program):
    """The container ends with the job, and with it whatever still sends."""
    trainer = Run(tmp_path, programs_python, program)
    trainer.config["checkpoint"]["s3_uri"] = URI
    done = trainer.run(2)
    assert done.returncode == 0, done.stderr
    assert s3.json("latest") == {"version": 1, "name": "iter_0000012", "step": 12}
    whole = {name for name in s3.names() if name.startswith("iter_0000012/")}
    files = {path.name for path in (trainer.checkpoints / "iter_0000012").iterdir()}
    assert {name.rpartition("/")[2] for name in whole} == {*files, "manifest.json"}
    assert json.loads(done.stdout)["status"] == "finished"


def test_a_recipe_copies_what_it_saves(s3, config, tmp_path):
    """One process of the job sends, and the program waits for it."""
    job = json.loads(config.read_text())
    job["checkpoint"] |= {"s3_uri": URI, "keep_last": 1}
    config.write_text(json.dumps(job))
    environment = bridge(tmp_path / "packages")
    done = recipe(config, RANK="1", **environment)
    assert (done.code, s3.names()) == (0, [])
    shutil.rmtree(tmp_path / "save")
    done = recipe(config, **environment)
    assert done.code == 0, done.stderr
    assert s3.json("latest")["name"] == "iter_0000010"
    assert whole.by_bytes(tmp_path / "save" / "iter_0000010").kind == "whole"


def recipe(config, **environment):
    """Run train_bridge."""
    words = ("--recipe", "llama31_8b_pretrain_config", "--config", config)
    return run("train_bridge", *words, environment=environment)


def bridge(packages):
    """Write the stand-in, and return the variable that makes it the one that is imported."""
    values = bridge_config.values_of(JOB)
    names = [*values, "dataset.blend", "logger.tensorboard_dir"]
    training = packages / "megatron" / "bridge" / "training"
    training.mkdir(parents=True)
    (training.parent / "__init__.py").write_text("class AutoBridge:\n    from_hf_pretrained = 0\n")
    (training.parent / "recipes.py").write_text(f"NAMES = {names!r}\n{RECIPES}")
    (training / "gpt_step.py").write_text("forward_step = None\n")
    (training / "mixed_precision.py").write_text("def get_mixed_precision_config(name): ...\n")
    (training / "pretrain.py").write_text(PRETRAIN)
    saved.megatron(packages, 10)
    return {"PYTHONPATH": str(packages)}
