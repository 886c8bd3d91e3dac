"""What has to be true before a trainer starts, as far as this node can see it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from megatron_eks.catalog.models import ModelShape
from megatron_eks.programs.prepare.indexed_data import DataSet, check_prefix
from megatron_eks.programs.program import Finding, error, usage_error
from megatron_eks.programs.start import preconditions
from megatron_eks.programs.trainer.batches import is_indexed
from megatron_eks.programs.trainer.config import Config
from megatron_eks.programs.trainer.documents import JSONL
from megatron_eks.programs.trainer.shape import matrix_parameters

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def check_all(config: Config, shape: ModelShape, kind: str) -> Iterator[Finding]:
    """Check device, shape, data and directories."""
    yield from _check_device(kind)
    yield from _check_length(config, shape)
    yield from _check_data(config)
    yield from preconditions.check_environment(os.environ)
    # Once a node: ranks beside each other see the same.
    if os.environ.get("LOCAL_RANK", "0") == "0":
        directory = Path(config.checkpoint.directory)
        # fp32 weights of the layers' matrices, and both of Adam's moments.
        least = 12 * matrix_parameters(shape)
        where = directory, None, config.checkpoint.format, least
        yield from preconditions.check_save(*where)
        if directory.is_dir():
            yield from preconditions.check_space(*where)


def _check_device(kind: str) -> Iterator[Finding]:
    if kind == "cpu":
        return
    needed, there = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if there < needed:
        found = f"{there} GPUs, and {needed} processes on this node"
        yield error("device", found, "start one process a GPU, or use --device cpu")


def _check_length(config: Config, shape: ModelShape) -> Iterator[Finding]:
    length, most = config.training.sequence_length, shape.max_position_embeddings
    if length > most:
        found = f"{length}, and the model has {most} positions"
        yield usage_error("training.sequence_length", found, f"use at most {most}")


def _check_data(config: Config) -> Iterator[Finding]:
    dataset = config.data.dataset
    if is_indexed(dataset) or dataset.endswith((".bin", ".idx")):
        good: list[DataSet] = []
        yield from check_prefix(dataset, good)
    elif dataset.endswith(JSONL):
        if not Path(dataset).is_file():
            yield error(dataset, "no such file", "correct data.dataset")
    elif not Path(dataset).is_dir() and not _NAME.fullmatch(dataset):
        remedy = "name a .jsonl file, an indexed prefix, or a Hugging Face data set"
        yield error(dataset, "neither data here nor a name of Hugging Face's", remedy)
