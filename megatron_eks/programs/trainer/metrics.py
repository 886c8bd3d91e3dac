"""What a run says of each step: a JSON object in metrics.jsonl and a line for people."""

import json
import math
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from megatron_eks.catalog.gpus import gpu_named
from megatron_eks.catalog.models import ModelShape
from megatron_eks.programs.checkpoint import disk
from megatron_eks.programs.trainer.shape import flops_per_token
from megatron_eks.programs.trainer.tracking import Trackers

FILE = "metrics.jsonl"

_GIB = 1024**3


def memory_gib(device: torch.device) -> float:
    """Return the most memory this process has held, of the GPU if there is one."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / _GIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _GIB


class Metrics:
    """The file of rank 0, and the figures that follow from a step's time."""

    def __init__(
        self, directory: Path, shape: ModelShape, device: torch.device, *, start: int, length: int
    ) -> None:
        """Take the step that the run starts after, and the length of its sequences."""
        self._file = LineFile(directory / FILE)
        self._file.guard(lambda: _forget_after(directory / FILE, start))
        self._flops_per_token = flops_per_token(shape, length)
        self._ranks, self._device = dist.get_world_size(), device
        on_gpu = device.type == "cuda"
        gpu = gpu_named(torch.cuda.get_device_name(device)) if on_gpu else None
        self._peak = gpu.tflops_bf16 if gpu else None
        self.trackers: Trackers | None = None
        """Where else the figures of steps go that are logged."""

    def step(self, values: dict[str, Any], tokens: int) -> dict[str, Any]:
        """Add the figures that follow from `seconds`, write the step and return all of it."""
        rate = tokens / values["seconds"]
        tflops = rate / self._ranks * self._flops_per_token / 1e12
        values = {
            **values,
            "tokens_per_second": round(rate, 1),
            "tflops_per_gpu": float(f"{tflops:.4g}"),
            "mfu": None if self._peak is None else round(tflops / self._peak, 4),
            "memory_gib": round(memory_gib(self._device), 3),
        }
        self._file.append(json.dumps(values))
        return values

    def close(self) -> None:
        """End what takes the figures."""
        self._file.close()
        if self.trackers:
            self.trackers.close(well=sys.exception() is None)


class LineFile:
    """Lines at the end of a file; what a full or lost file system does not take waits in memory.

    A run is worth more than its figures: nothing is raised, and a trouble is said once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting = b""
        self._said: int | None = None

    def append(self, line: str) -> None:
        """Write a line, after those that still wait."""
        self._waiting += f"{line}\n".encode()
        self.guard(self._write)

    def close(self) -> None:
        """Say what could not be written."""
        if self._waiting:
            lost = self._waiting.count(b"\n")
            sys.stderr.write(f"warning {self._path}: {lost} lines are lost\n")

    def guard(self, action: Callable[[], None]) -> None:
        """Do something with the file; say it once where the system refuses."""
        try:
            action()
        except OSError as problem:
            found, remedy = disk.explain(self._path.parent, problem)
            if problem.errno != self._said:
                self._said = problem.errno
                sys.stderr.write(
                    f"warning {self._path}: {found} - training goes on, its lines wait; {remedy}\n"
                )

    def _write(self) -> None:
        # Opened anew each time, so that a trouble leaves no file that cannot be used.
        with self._path.open("ab", buffering=0) as file:
            while self._waiting:
                # Less than all is written where room ends: the rest of that line comes later.
                self._waiting = self._waiting[file.write(self._waiting) :]
        self._said = None


def say(values: dict[str, Any], steps: int) -> None:
    """Write one line about a step on stderr."""
    mfu = "" if values["mfu"] is None else f" | MFU {100 * values['mfu']:.1f} %"
    validation = values.get("validation_loss")
    more = "" if validation is None else f" | validation loss {validation:.5f}"
    sys.stderr.write(
        f"step {values['step']}/{steps} | loss {values['loss']:.5f} | "
        f"grad norm {values['grad_norm']:.3f} | lr {values['learning_rate']:.3e} | "
        f"{values['tokens_per_second']:,.0f} tokens/s | {values['tflops_per_gpu']:.4g} TFLOP/s/GPU"
        f"{mfu} | {values['memory_gib']:.2f} GiB | {values['seconds']:.3f} s{more}\n"
    )
    sys.stderr.flush()


def _forget_after(path: Path, step: int) -> None:
    """Drop the steps that will be done again, and a line that a crash cut short.

    They are the end of the file, which is cut off: that takes no room on a full file system.
    """
    if not path.is_file():
        return
    kept = end = 0
    with path.open("rb") as file:
        for line in file:
            end += len(line)
            if line.endswith(b"\n") and _step(line) <= step:
                kept = end
    if kept < end:
        os.truncate(path, kept)


def _step(line: bytes) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError):
        return math.inf
