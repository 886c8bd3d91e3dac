"""Writes and reads a trainer's checkpoint files: with checksums, and without running what they say.

torch reads a checkpoint's `.metadata`, and every object in it that is no tensor, by a plain pickle,
which runs whatever the file names. The first is looked at before (saved_tensors.py), the others are
read here by torch's short list of classes.
"""

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, FileSystemWriter
from torch.distributed.checkpoint._nested_dict import set_element

from megatron_eks.programs.checkpoint import manifests
from megatron_eks.programs.checkpoint.manifest_format import FileEntry

_SUMS = ".sums-"


class Writer(FileSystemWriter):
    """Reads what a rank wrote back from the file system, for the manifest."""

    def write_data(self, plan: Any, planner: Any) -> Any:  # noqa: ANN401 -- torch ships no types here
        """Write a rank's files, then note their checksums beside them."""
        written = super().write_data(plan, planner)
        directory, prefix = Path(self.path), plan.storage_data.prefix
        found = [
            asdict(manifests.entry(directory, path))
            for path in sorted(directory.glob(f"{prefix}*"))
        ]
        (directory / f"{_SUMS}{prefix}").write_text(json.dumps(found))
        return written


def take_sums(directory: Path) -> dict[str, FileEntry]:
    """Return what all ranks noted of their files, and remove the notes."""
    found: dict[str, FileEntry] = {}
    for path in directory.glob(f"{_SUMS}*"):
        for each in json.loads(path.read_bytes()):
            found[each["path"]] = FileEntry(**each)
        path.unlink()
    return found


class Planner(DefaultLoadPlanner):
    """Reads objects that are no tensors by torch's own list of classes."""

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:  # noqa: ANN401 -- as above
        """Put an object into its place."""
        name = read_item.dest_index.fqn
        content = torch.load(value, weights_only=True)
        set_element(self.original_state_dict, self.mappings[name], content)
