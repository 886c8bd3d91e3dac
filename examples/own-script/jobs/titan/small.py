"""What `--module small --config llama3_1b` names: torchtitan's own smallest Llama 3 has 8 B."""

from dataclasses import replace

from torchtitan.models.llama3 import model_registry
from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.trainer import Trainer


def llama3_1b() -> Trainer.Config:
    """Return a configuration that fits into two GPUs of 24 GB."""
    return replace(llama3_8b(), model_spec=model_registry("1B"))
