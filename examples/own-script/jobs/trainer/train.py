"""Trains a small GPT from random weights by the Trainer of Hugging Face."""

import argparse
import os
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Counting(torch.utils.data.Dataset):
    """Sequences in which each token follows from the one before it."""

    def __len__(self) -> int:
        """Return the number of sequences."""
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one sequence, and what is to be learnt of it."""
        tokens = (index + 3 * torch.arange(64)) % 256
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train until the last step, from the newest checkpoint on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--directory", default="/shared/checkpoints/trainer")
    options = parser.parse_args()

    size = {"vocab_size": 256, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=None, eos_token_id=None))
    arguments = TrainingArguments(
        output_dir=options.directory,
        max_steps=options.steps,
        per_device_train_batch_size=8,
        save_steps=25,
        logging_steps=5,
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        use_cpu=not torch.cuda.is_available(),
        report_to="wandb" if os.environ.get("WANDB_PROJECT") else "none",
    )
    last = get_last_checkpoint(options.directory) if Path(options.directory).is_dir() else None
    Trainer(model, arguments, train_dataset=Counting()).train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
