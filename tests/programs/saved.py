"""Checkpoints as the programs save them, small, with content that tells them apart."""

import json
import random
from pathlib import Path


def megatron(root: Path, step: int, *, size: int = 50_000, seed: int = 0) -> Path:
    """Write a whole torch_dist checkpoint."""
    directory = root / f"iter_{step:07d}"
    _files(directory, step, size, seed)
    (directory / "common.pt").write_bytes(b"common")
    (directory / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))
    return directory


def series(root: Path) -> Path:
    """Write two whole checkpoints, a newer torn one, and the tracker of the newest whole one."""
    for step in (400, 500):
        megatron(root, step)
    (megatron(root, 600) / "metadata.json").unlink()
    (root / "latest_checkpointed_iteration.txt").write_text("500")
    return root


def content(directory: Path) -> dict[str, bytes]:
    """Return every file of a directory."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def _files(directory: Path, step: int, size: int, seed: int) -> None:
    directory.mkdir(parents=True)
    numbers = random.Random(step * 1000 + seed)  # noqa: S311 -- no secret
    for rank in range(2):
        (directory / f"__{rank}_0.distcp").write_bytes(numbers.randbytes(size))
    (directory / "nested").mkdir()
    (directory / "nested" / "empty").touch()
    (directory / ".metadata").write_bytes(b"metadata")
