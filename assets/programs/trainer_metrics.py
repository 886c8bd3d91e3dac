"""What a run says of each step: a JSON object in metrics.jsonl and a line for people."""

import json
import os
import resource
import sys
from pathlib import Path
from typing import IO, Any

import torch
from trainer_peaks import peak_tflops
from trainer_shape import Shape

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
        self, directory: Path, *, resumed_at: int, shape: Shape, length: int, ranks: int
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / FILE
        _forget_after(self._path, resumed_at)
        self._file: IO[str] = self._path.open("a", encoding="utf-8")
        self._flops_per_token = shape.flops_per_token(length)
        self._ranks = ranks
        self._device = torch.device("cpu")
        self._peak: float | None = None

    def measure_on(self, device: torch.device) -> None:
        """Say which device the figures are of."""
        self._device = device
        if device.type == "cuda":
            self._peak = peak_tflops(torch.cuda.get_device_name(device))

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
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()
        return values

    def close(self) -> None:
        """Put everything on disk."""
        os.fsync(self._file.fileno())
        self._file.close()


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
    """Drop the steps that will be done again, and a line that a crash cut short."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if values["step"] <= step:
            kept.append(line + "\n")
    aside = path.with_name(f".{path.name}")
    aside.write_text("".join(kept), encoding="utf-8")
    aside.replace(path)
