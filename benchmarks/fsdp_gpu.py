"""Speed of train_fsdp on the GPUs of this machine; where there are none, nothing is printed.

`python -m benchmarks.fsdp_gpu [PRESET]` takes the model, `llama-3.2-1b` unless another is named,
through 30 steps of 8,192 tokens on random data with random weights, compiled, and prints the
medians of the last ten. Settings to compare torchtitan with: bf16, fp32 reduction, one sequence a
GPU, no activation checkpointing for models below 3 B parameters and full above.
"""

import json
import os
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from megatron_eks.catalog.models import PRESETS
from megatron_eks.predict.parameters import parameters
from megatron_eks.project import ROOT

_LENGTH = 8192
_STEPS = 30
_COUNTED = 10
_TOKENS = 1_000_000
_SMALL = 3e9
_PATIENCE_SECONDS = 900.0


def gpus() -> list[str]:
    """Return the names of this machine's GPUs."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- fixed words
    return done.stdout.splitlines() if done.returncode == 0 else []


def measure(preset: str, count: int) -> list[dict[str, Any]]:
    """Train a model for some steps and return their figures."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _write_data(root / "random", PRESETS[preset].vocab_size)
        config = {
            "model": preset,
            "training": {
                # The run is ended below: a last checkpoint of billions of parameters takes longer.
                "max_steps": 10 * _STEPS,
                "sequence_length": _LENGTH,
                "activation_checkpointing": parameters(PRESETS[preset]) > _SMALL,
                "validation_interval": 10 * _STEPS,
            },
            "data": {"dataset": str(root / "random"), "tokenizer": "none"},
            "checkpoint": {"directory": str(root / "checkpoints"), "interval": 10 * _STEPS},
        }
        (root / "config.json").write_text(json.dumps(config))
        process = subprocess.Popen(  # noqa: S603 -- the program that is measured
            [
                *(str(ROOT / ".venv-programs/bin/python"), "-m", "torch.distributed.run"),
                *("--standalone", f"--nproc-per-node={count}"),
                *("-m", "megatron_eks.programs.train_fsdp"),
                *("--config", str(root / "config.json"), "--compile", "on"),
            ],
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            return _watch(process, root / "checkpoints" / "metrics.jsonl")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def main(preset: str) -> None:
    """Print one line, or nothing."""
    names = gpus()
    if not names:
        return
    steps = measure(preset, len(names))[-_COUNTED:]
    median = {
        key: statistics.median(step[key] for step in steps)
        for key in ("tokens_per_second", "tflops_per_gpu", "memory_gib", "seconds")
    }
    mfu = steps[-1]["mfu"] and statistics.median(step["mfu"] for step in steps)
    sys.stdout.write(
        f"{preset}, {len(names)} x {names[0]}, {_LENGTH} tokens a GPU: "
        f"{median['tokens_per_second'] / len(names):,.0f} tokens/s/GPU, "
        f"{median['tflops_per_gpu']:.1f} TFLOP/s/GPU, MFU {mfu}, "
        f"{median['memory_gib']:.1f} GiB, {median['seconds']:.3f} s a step\n"
    )


def _watch(process: "subprocess.Popen[bytes]", path: Path) -> list[dict[str, Any]]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) > _STEPS:
            return [json.loads(line) for line in lines[:_STEPS]]
        time.sleep(1)
    raise SystemExit("train_fsdp did not come to its last step")


def _write_data(prefix: Path, vocabulary: int) -> None:
    """Write one document of random tokens as Megatron's two files."""
    drawn = random.Random(1)  # noqa: S311 -- no secret
    tokens = [drawn.randrange(vocabulary) for _ in range(_TOKENS)]
    Path(f"{prefix}.bin").write_bytes(struct.pack(f"<{_TOKENS}i", *tokens))
    index = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 4, 1, 2)
    Path(f"{prefix}.idx").write_bytes(index + struct.pack("<iqqq", _TOKENS, 0, 0, 1))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "llama-3.2-1b")
