"""What the trainers do before they read their configuration."""

import json
import subprocess

import pytest

from tests.programs.run_program import ROOT
from tests.programs.trainer_files import environment, python_says

pytestmark = pytest.mark.programs

STACKS = """
import os, signal
from megatron_eks.programs.trainer import run
run.read_config = lambda *_: os.kill(os.getpid(), signal.SIGUSR1)
run.main("train_fsdp", "", None, ["--config=FILE"])
"""


def test_a_trainer_survives_that_its_stacks_are_asked_for(programs_python):
    """The watcher asks before it ends a blocked rank, so that the log says where it stood."""
    assert python_says(programs_python, STACKS)["status"] == "refused"


BARE = """
import runpy, sys
sys.modules |= dict.fromkeys(("pydantic", "tokenizers"))
runpy.run_module(f"megatron_eks.programs.{sys.argv.pop()}", run_name="__main__")
"""


@pytest.mark.parametrize("name", ["train_fsdp", "train_ddp"])
def test_an_image_without_pydantic_is_told_of(programs_python, name):
    """By exit code 2 and one sentence: an image of the user's may lack what its kind imports."""
    done = bare(programs_python, name)
    assert done.returncode == 2
    said = "error pydantic: not in the image, and kinds fsdp and ddp do not start without it - "
    assert done.stderr == f"{said}install it there (docs/images.md)\n"
    assert json.loads(done.stdout)["status"] == "refused"


def test_a_look_at_an_image_names_what_the_trainers_import(programs_python):
    """They are warnings: jobs of other kinds need neither."""
    told = json.loads(bare(programs_python, "image_check").stdout)["findings"]
    found = "not in the image: kinds fsdp and ddp"
    remedy = "install it if jobs of these kinds use this image"
    assert {
        f"warning pydantic: {found} do not start - {remedy}",
        f"warning tokenizers: {found} read no text - {remedy}",
    } <= {*told}


def bare(python, name):
    """Run a program where two packages are missing."""
    words = [str(python), "-c", BARE, name]
    return subprocess.run(  # noqa: S603 -- a program under test
        words, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
