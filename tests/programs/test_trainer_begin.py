"""What the trainers do before they read their configuration."""

import pytest

from tests.programs.trainer_files import python_says

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
