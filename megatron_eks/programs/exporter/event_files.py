"""The steps that a program writes to TensorBoard's event files, as they come.

A file is a row of TFRecords: length, its checksum, an Event, its checksum. Of an Event's Summary
scalars are read whose names stand in _TAGS. Sources: tensorflow/core/lib/io/record_writer.h;
tensorboard/compat/proto/{event,summary,tensor}.proto; torch/utils/tensorboard/summary.py.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from megatron_eks.programs.exporter.steps_file import step_of
from megatron_eks.programs.run_log import Step

VARIABLE = "TENSORBOARD_LOGGING_DIR"
"""Names the folder; transformers reads it (integration_utils.py of 5.23)."""
FLUSH_SECONDS = 120.0
"""How long the usual writer keeps events to itself (torch's SummaryWriter, flush_secs)."""

# What transformers, torchtitan (components/metrics.py), NeMo and Megatron-LM (training_log) write,
# and Lightning's examples; what each value is, and in how many of these it is told.
_TAGS = {
    tag: (name, scale)
    for name, scale, tags in (
        ("loss", 1.0, "loss|train/loss|train_loss|train_loss_step|loss/train|lm loss"),
        ("loss", 1.0, "reduced_train_loss|loss_metrics/global_avg_loss"),
        ("grad_norm", 1.0, "grad_norm|train/grad_norm|grad-norm"),
        ("tokens_per_second", 1.0, "tokens_per_second|train/tokens_per_second"),
        ("gpu_tokens", 1.0, "throughput(tps)"),
        ("mfu", 0.01, "mfu(%)"),
        ("seconds", 1.0, "time_metrics/end_to_end(s)|iteration-time|train_step_timing in s"),
        ("data_seconds", 1.0, "time_metrics/data_loading(s)"),
    )
    for tag in tags.split("|")
}
# Some programs write a file for each rank, or one for evaluations; none deeper than this.
_FILES, _DEPTH, _ROUNDS = 4, 4, 6
# Images, graphs and histograms are longer than scalars, and passed over.
_LONGEST = 1024
_HEAD, _FLOAT, _DOUBLE = struct.Struct("<Q4s"), struct.Struct("<f"), struct.Struct("<d")
_CHECKSUM_BYTES = 4
# Sizes of the kinds of fields that have one (Protocol Buffers, "Encoding").
_SIZES = {1: 8, 5: 4}


@dataclass
class _File:
    """What was read of one: up to where, and its newest step."""

    place: int = 0
    step: int = -1
    at: float = 0.0
    values: dict[str, float] = field(default_factory=dict)


class EventFiles:
    """Files below a folder that were begun since a time; the newest that tells a loss counts."""

    def __init__(self, folder: Path, since: float, gpus: int) -> None:
        self._folder, self._since, self._gpus = folder, str(int(since)), gpus
        self._files: dict[Path, _File] = {}
        self._rounds = 0

    def new(self) -> Iterator[tuple[Step, float | None, float]]:
        """Yield new steps: what is told of each, its wait for data, its time. Raises OSError."""
        if self._rounds % _ROUNDS == 0:
            self._files = {path: self._files.get(path, _File()) for path in self._newest()}
        self._rounds += 1
        for path, file in self._files.items():
            for _ in _read(path, file):
                told = {"step": file.step, **file.values}
                waited, rate = told.pop("data_seconds", None), told.pop("gpu_tokens", None)
                told |= {} if rate is None else {"tokens_per_second": rate * self._gpus}
                if "loss" in told:
                    yield step_of(told), waited, file.at
            if "loss" in file.values:
                return

    def _newest(self) -> list[Path]:
        """Return the files, the newest first: their names say in which second they began."""
        patterns = (f"{'*/' * depth}events.out.tfevents.*" for depth in range(_DEPTH))
        every = chain.from_iterable(map(self._folder.glob, patterns))
        found = [(each.name, each) for each in every if each.name.split(".")[3] >= self._since]
        return [path for _, path in sorted(found, reverse=True)[:_FILES]]


def _read(path: Path, file: _File) -> Iterator[None]:
    """Read on, and stop at each step when all of it is known.

    A last record that is not whole, or not what its checksum says, is read again next time.
    """
    is_new = False
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        while file.place + _HEAD.size <= size:
            stream.seek(file.place)
            head = stream.read(_HEAD.size)
            length, checksum = _HEAD.unpack(head)
            end = file.place + _HEAD.size + length + _CHECKSUM_BYTES
            if masked_crc(head[:-_CHECKSUM_BYTES]) != checksum or end > size:
                break
            data = stream.read(length) if length <= _LONGEST else b""
            if data and masked_crc(data) != stream.read(_CHECKSUM_BYTES):
                break
            file.place = end
            step, at, values = _event(data)
            if values and step != file.step:
                if is_new:
                    yield
                if step > file.step >= 0 and (took := at - file.at) > 0:
                    values = {"seconds": took / (step - file.step), **values}
                file.step, file.at, file.values = step, at, {}
            file.values |= values
            is_new = is_new or bool(values)
    if is_new:
        yield


def _event(data: bytes) -> tuple[int, float, dict[str, float]]:
    """Return step, time and known scalars of an Event; none of one that cannot be read."""
    step, at, values = 0, 0.0, dict[str, float]()
    with suppress(LookupError, struct.error):
        for name, count, part in _fields(data, "wall_time step . . summary"):
            if name == "wall_time":
                (at,) = _DOUBLE.unpack(part)
            elif name == "step":
                step = count
            else:
                for _, _, value in _fields(part, "value"):
                    values |= _scalar(value)
    return step, at, values


def _scalar(data: bytes) -> dict[str, float]:
    """Return the value of a Summary.Value by its name; nothing if its name is none of _TAGS."""
    told, scale = "", 1.0
    for name, _, part in _fields(data, "tag simple_value . . . . . tensor"):
        if name == "tag":
            told, scale = _TAGS.get(part.decode(errors="replace").lower(), ("", 0.0))
        elif told and name == "simple_value":
            return {told: _FLOAT.unpack(part)[0] * scale}
        elif told:
            # TensorFlow 2 and torch's new style: a tensor of one number.
            for _, _, each in _fields(part, ". . . tensor_content float_val double_val"):
                form = _DOUBLE if len(each) == _DOUBLE.size else _FLOAT
                return {told: form.unpack(each)[0] * scale}
    return {}


def _fields(data: bytes, names: str) -> Iterator[tuple[str, int, bytes]]:
    """Yield the fields of a message that have a name, each with its number or its bytes.

    Raises LookupError where the message is none.
    """
    known, place = dict(enumerate(names.split(), 1)), 0
    while place < len(data):
        key, place = _varint(data, place)
        count = size = _SIZES.get(key & 7, 0)
        if not count:
            count, place = _varint(data, place)
            size = count if key & 2 else 0
        if (name := known.get(key >> 3, ".")) != ".":
            yield name, count, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while data[place] & 128:
        value |= (data[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return value | data[place] << shift, place + 1


def masked_crc(data: bytes) -> bytes:
    """Return a record's checksum: CRC-32C, turned and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF).to_bytes(4, "little")


def _remainder(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (value & 1) * 0x82F63B78
    return value


_CRC = [_remainder(value) for value in range(256)]
