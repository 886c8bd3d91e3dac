"""Reads what torch saved without torch, and without running anything that the files name.

A checkpoint's `.metadata` is a pickle, which may name any function to be called. Here every name
becomes an object that only remembers what it was given; a name that no checkpoint needs is an
error. Formats: torch/distributed/checkpoint/filesystem.py and metadata.py, torch/serialization.py,
torch 2.9; megatron/core/dist_checkpointing/strategies, Megatron core 0.19.
"""

import io
import pickle
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

METADATA = ".metadata"
RANK_FILE = "model_optim_rng.pt"
"""Of each rank, in the `torch` format."""

_COMMON = "common_state"
_CHUNK_BYTES = 2**20
_CHECKPOINT = "torch.distributed.checkpoint"
_NAMES: dict[str, set[str]] = {
    # Python 3.11 names a member of an enumeration by it.
    "builtins": {"getattr"},
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath"},
    "megatron.core.dist_checkpointing.strategies.torch": {"MCoreMetadata"},
    "torch": {
        *("Size", "device", "bool", "uint8", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2"),
    },
    "torch.serialization": {"_get_layout"},
    f"{_CHECKPOINT}.filesystem": {"_StorageInfo", "_StoragePrefix"},
    f"{_CHECKPOINT}.metadata": {
        *("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex"),
        *("StorageMeta", "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"),
    },
    f"{_CHECKPOINT}.planner": {"SavePlan", "TensorWriteData", "WriteItem", "WriteItemType"},
}
"""What `.metadata` may name: classes that hold values, of torch and of Megatron."""


class BadFileError(Exception):
    """The file is not what torch saves, or is cut or changed."""


@dataclass(frozen=True)
class Item:
    """Where one tensor or object of a checkpoint lies."""

    name: str
    file: str
    offset: int
    length: int
    plain: bool
    """Whether the bytes are torch.save's own, and not transformed by an extension."""


class Inert:
    """Stands for whatever a pickle names: a class, a function, or what they would have made."""

    def __new__(cls, *_args: object, **_words: object) -> Self:
        """Make it of anything."""
        return object.__new__(cls)

    def __init__(self, *args: object, **_words: object) -> None:
        self.args = args
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        """Remember what it was given."""
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        """Take an entry, as dictionaries of other classes do."""

    def append(self, value: object) -> None:
        """Take an element, as lists of other classes do."""

    def extend(self, values: object) -> None:
        """Take elements."""


class _Unpickler(pickle.Unpickler):
    """Makes nothing but containers, numbers, texts and `Inert`."""

    def find_class(self, _module: str, name: str, /) -> type[Inert]:
        return type(name, (Inert,), {})

    def persistent_load(self, _key: object, /) -> Inert:
        """Stand for a tensor's bytes, which are in other members of the archive."""
        return Inert()


class _Strict(_Unpickler):
    def find_class(self, module: str, name: str, /) -> type[Inert]:
        if name not in _NAMES.get(module, ()):
            raise BadFileError(f"it names {module}.{name}, which no checkpoint needs")
        return super().find_class(module, name)


def items(directory: Path) -> dict[str, list[Item]]:
    """Return where `.metadata` of a checkpoint says that its bytes lie, by file.

    Raises BadFileError, and OSError where it cannot be read.
    """
    with (directory / METADATA).open("rb") as file:
        try:
            content = _Strict(file).load()
            places = content.state["storage_data"]
            found = [_item(key.state, place.state) for key, place in places.items()]
        except BadFileError as problem:
            raise BadFileError(f"{METADATA}: {problem}") from problem
        except OSError:
            raise
        except Exception as problem:  # whatever a damaged pickle makes of itself
            raise BadFileError(f"{METADATA} cannot be read: {problem}") from problem
    if not found:
        raise BadFileError(f"{METADATA} names no tensor")
    files = defaultdict(list)
    for item in found:
        files[item.file].append(item)
    return files


def check_items(directory: Path, file: str, found: list[Item]) -> None:
    """Read the items of one file, each of which has checksums of its own; raises BadFileError."""
    with (directory / file).open("rb") as stream:
        for item in sorted(found, key=lambda each: each.offset):
            if item.plain:
                _check_zip(_Slice(stream, item), f"{file} at {item.offset:,}")


def check_file(path: Path) -> None:
    """Read a file that torch.save wrote; raises BadFileError."""
    with path.open("rb") as stream:
        _check_zip(stream, path.name)


def has_common(directory: Path, found: Mapping[str, list[Item]]) -> bool:
    """Tell whether what all ranks of Megatron share is there: in a file, or as an object."""
    return (directory / "common.pt").is_file() or next(_common(found), None) is not None


def _common(found: Mapping[str, list[Item]]) -> Iterator[Item]:
    for each in found.values():
        yield from (item for item in each if item.name.startswith(_COMMON))


def iterations(directory: Path) -> set[int]:
    """Return the iterations that Megatron wrote down inside a checkpoint; each rank notes it.

    Raises BadFileError and OSError as `items` does.
    """
    found: list[Mapping[str, Any]] = []
    for path in (directory / "common.pt", *sorted(directory.glob(f"mp_rank_*/{RANK_FILE}"))):
        if path.is_file():
            with path.open("rb") as stream:
                found.append(_values(stream))
    if not found and (directory / METADATA).is_file():
        for item in [*_common(items(directory))][:1]:
            with (directory / item.file).open("rb") as stream:
                found.append(_values(_Slice(stream, item)))
    return {each["iteration"] for each in found if isinstance(each.get("iteration"), int)}


def ranks(path: Path) -> int:
    """Return how many ranks, at least, Megatron's arguments in one rank's file say have one.

    Each pair of tensor and expert rank of each pipeline stage has one, where experts are split as
    the other layers are.
    """
    with path.open("rb") as stream:
        arguments = getattr(_values(stream).get("args"), "state", None)
    if not isinstance(arguments, dict):
        return 1
    kinds = ("pipeline", "tensor", "expert")
    sizes = [arguments.get(f"{kind}_model_parallel_size") or 1 for kind in kinds]
    if not all(isinstance(size, int) for size in sizes):
        return 1
    stages, shards, experts = map(int, sizes)
    is_even = arguments.get("expert_tensor_parallel_size") in {None, shards}
    return stages * shards * (experts if is_even else 1)


def _values(stream: "IO[bytes] | _Slice") -> Mapping[str, Any]:
    """Return the dictionary that torch.save wrote, without its tensors; empty where it is none."""
    try:
        with zipfile.ZipFile(stream) as archive:
            member = next(name for name in archive.namelist() if name.endswith("data.pkl"))
            content = _Unpickler(io.BytesIO(archive.read(member))).load()
    except Exception:  # noqa: BLE001 -- whether it is whole, others judge
        return {}
    # Megatron saves an object of several shards as a list.
    content = content[0] if isinstance(content, list) and content else content
    return content if isinstance(content, dict) else {}


def _item(key: Any, place: Any) -> Item:  # noqa: ANN401 -- what a pickle holds
    file, offset, length = (place[name] for name in ("relative_path", "offset", "length"))
    if not isinstance(file, str) or "/" in file or min(offset, length) < 0:
        raise BadFileError(f"it names {file!r} at {offset!r}")
    return Item(str(key["fqn"]), file, offset, length, not place.get("transform_descriptors"))


def _check_zip(stream: "IO[bytes] | _Slice", name: str) -> None:
    try:
        with zipfile.ZipFile(stream) as archive:
            for member in archive.infolist():
                with archive.open(member) as content:
                    # At its end the checksum is compared.
                    while content.read(_CHUNK_BYTES):
                        pass
    except OSError:
        raise
    except Exception as problem:  # whatever a damaged archive makes of itself
        raise BadFileError(f"{name} is damaged: {problem}") from problem


class _Slice(io.RawIOBase):
    def __init__(self, stream: IO[bytes], item: Item) -> None:
        super().__init__()
        self._stream, self._begin, self._length = stream, item.offset, item.length
        self._place = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._length}[whence]
        self._place = max(0, base + offset)
        return self._place

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._length - self._place)
        wanted = left if size is None or size < 0 else min(size, left)
        self._stream.seek(self._begin + self._place)
        content = self._stream.read(wanted)
        self._place += len(content)
        return content
