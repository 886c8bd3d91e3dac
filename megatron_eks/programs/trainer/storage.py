"""Writes and reads a trainer's checkpoint files: with checksums, and without running what they say.

torch reads a checkpoint's `.metadata`, and every object in it that is no tensor, by a plain pickle,
which runs whatever the file names. The first is looked at before (saved_tensors.py), the others are
read here by torch's short list of classes.
"""

import io
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemWriter
from torch.distributed.checkpoint._nested_dict import set_element

from megatron_eks.programs.checkpoint import manifests


class Writer(FileSystemWriter):
    """Reads what a rank wrote back from the file system, for the manifest."""

    def write_data(self, plan: Any, planner: Any) -> Any:  # noqa: ANN401 -- torch ships no types here
        """Write a rank's files, then note their checksums in `entries`."""
        written = super().write_data(plan, planner)
        directory = Path(self.path)
        paths = sorted(directory.glob(f"{plan.storage_data.prefix}*"))
        self.entries = [manifests.entry(directory, path) for path in paths]
        return written


class Planner(DefaultLoadPlanner):
    """Reads objects that are no tensors by torch's own list of classes."""

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:  # noqa: ANN401 -- as above
        """Put an object into its place."""
        name = read_item.dest_index.fqn
        content = torch.load(value, weights_only=True)
        set_element(self.original_state_dict, self.mappings[name], content)
