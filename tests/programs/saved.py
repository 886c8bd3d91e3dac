"""Checkpoints as the programs save them, small, with content that tells them apart."""

import io
import json
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any, ClassVar

from megatron_eks.programs.checkpoint import manifest_format, whole


def megatron(root: Path, step: int, *, size: int = 50_000, seed: int = 0) -> Path:
    """Write a whole torch_dist checkpoint of two ranks, as Megatron does."""
    directory = root / f"iter_{step:07d}"
    directory.mkdir(parents=True)
    numbers = random.Random(step * 1000 + seed)  # noqa: S311 -- no secret
    for rank in range(2):
        (directory / f"__{rank}_0.distcp").write_bytes(torch_file(numbers.randbytes(size)))
    (directory / "nested").mkdir()
    (directory / "nested" / "empty").touch()
    dot_metadata(directory)
    (directory / "common.pt").write_bytes(torch_file(b"", iteration=step))
    (directory / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist"}))
    return directory


def seal(directory: Path) -> Path:
    """Write the manifest of a checkpoint."""
    assert whole.seal(directory).kind == "whole"
    return directory


def series(root: Path) -> Path:
    """Write two whole checkpoints, a newer torn one, and the tracker of the newest whole one."""
    for step in (400, 500):
        seal(megatron(root, step))
    (megatron(root, 600) / "metadata.json").unlink()
    (root / "latest_checkpointed_iteration.txt").write_text("500")
    return root


def content(directory: Path) -> dict[str, bytes]:
    """Return every file of a checkpoint but its manifest."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != manifest_format.MANIFEST
    }


def torch_file(tensor: bytes, **values: object) -> bytes:
    """Return what torch.save makes of a dictionary with a tensor of these bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(values))
        archive.writestr("archive/data/0", tensor)
    return stream.getvalue()


def dot_metadata(directory: Path) -> None:
    """Write `.metadata` as torch does: each file holds one tensor."""
    places = {
        _made("metadata", "MetadataIndex", fqn=path.stem, offset=None, index=None): _made(
            "filesystem",
            "_StorageInfo",
            relative_path=path.name,
            offset=0,
            length=path.stat().st_size,
            transform_descriptors=None,
        )
        for path in sorted(directory.glob("*.distcp"))
    }
    with (directory / ".metadata").open("wb") as file:
        _Pickler(file).dump(
            _made("metadata", "Metadata", state_dict_metadata={}, storage_data=places)
        )


def _made(module: str, name: str, **fields: object) -> Any:
    """Return an object of one of torch's classes, which are not here."""
    kind = type(name, (), {"__module__": f"torch.distributed.checkpoint.{module}"})
    made = kind()
    made.__dict__.update(fields)
    return made


def _write_name(pickler: Any, kind: type) -> None:
    """Write the name of a class, without looking for it."""
    pickler.write(pickle.GLOBAL + f"{kind.__module__}\n{kind.__name__}\n".encode())
    pickler.memoize(kind)


class _Pickler(pickle._Pickler):  # noqa: SLF001 -- the one that can be taught to name classes
    dispatch: ClassVar[Any] = {**pickle._Pickler.dispatch, type: _write_name}  # noqa: SLF001 -- as above
