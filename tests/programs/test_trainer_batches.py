"""Batches made ahead: what their thread does to the end of a process."""

import pytest

from tests.programs.trainer_files import python_says

pytestmark = pytest.mark.programs

BUSY = """
import json, threading, torch
from megatron_eks.programs.trainer.batches import Batches
class Busy:
    def sample(self, number):
        tokens = torch.zeros(65, dtype=torch.long)
        for _ in range(200):
            tokens = (tokens + number) % 9
        return tokens
    def state(self):
        return {}
batches = Batches(Busy(), consumed=0, per_rank=2, rank=0, ranks=2, ahead=2, vocabulary=9)
batches.next()
batches.close()
print(json.dumps(threading.active_count()))
"""

HANGS = """
import json, time
from megatron_eks.programs.trainer import batches
batches._PATIENCE_SECONDS = 0.1
class Hangs:
    def sample(self, number):
        time.sleep(3600)
ahead = batches.Batches(
    Hangs(), consumed=0, per_rank=2, rank=0, ranks=2, ahead=2, vocabulary=9
)
ahead.close()
print(json.dumps("ended"))
"""


def test_a_read_that_hangs_holds_no_gpus(programs_python):
    """Nobody needs what it would bring: the process ends without it."""
    assert python_says(programs_python, HANGS) == "ended"


def test_nothing_is_made_after_the_end(programs_python):
    """A thread inside PyTorch while Python ends would abort the process: a job done, yet failed."""
    assert python_says(programs_python, BUSY) == 1
