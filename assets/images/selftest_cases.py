"""The cases of an image's self-test: small runs of its programs on files made here."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from image_probe import MODULES

from megatron_eks.programs import PROGRAM_OPTIONS

LEVELS = ("quick", "standard", "full")
_HERE = Path(__file__).resolve().parent
_OURS = "megatron_eks.programs"
_SECONDS = 600
_CLOSE = 1e-4
"""Losses of the same step on other numbers of ranks: sums in another order."""

# Without a driver, what links against libcuda is satisfied by the toolkit's stub.
_IMPORT = """
import ctypes, importlib, os, sys
for name in ("libcuda.so.1", "/usr/local/cuda/lib64/stubs/libcuda.so"):
    try:
        ctypes.CDLL(name, mode=os.RTLD_GLOBAL)
        break
    except OSError:
        pass
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
_MODEL = {
    "num_layers": 2,
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 16,
    "vocab_size": 260,
    "max_position_embeddings": 128,
}
_END = 256
_STEPS, _SAVED = 6, 3


class FailedError(Exception):
    """A case failed; the text says with what."""


@dataclass(frozen=True)
class Case:
    """One test of an image."""

    name: str
    level: str
    run: Callable[[Path, str], None]
    """Takes a folder that all cases share, and the image; raises FailedError."""


def up_to(level: str) -> list[Case]:
    """Return the cases of a level and of those below it."""
    wanted = LEVELS[: LEVELS.index(level) + 1]
    return [case for case in CASES if case.level in wanted]


def _gate(_: Path, image: str) -> None:
    _run(sys.executable, _HERE / "gate.py", "--image", image)


def _imports(_: Path, image: str) -> None:
    _run(sys.executable, "-c", _IMPORT, *MODULES[image])


def _starts(_: Path, __: str) -> None:
    for name in (*PROGRAM_OPTIONS, "checkpoint_sync"):
        _run(sys.executable, "-m", f"{_OURS}.{name}", "--help")


def _prepares(folder: Path, _: str) -> None:
    for name in ("bin", "idx"):
        _expect((_prepared(folder, 1).with_suffix(f".{name}")).stat().st_size > 0, "an empty file")


def _prepares_alike(folder: Path, _: str) -> None:
    one, several = _prepared(folder, 1), _prepared(folder, 3)
    for name in ("bin", "idx"):
        left, right = (each.with_suffix(f".{name}").read_bytes() for each in (one, several))
        _expect(left == right, f"three workers wrote another .{name} than one")


def _fsdp(folder: Path, _: str) -> None:
    _falls(_train(folder, "train_fsdp", 1, "fsdp"))


def _ddp(folder: Path, _: str) -> None:
    _falls(_train(folder, "train_ddp", 1, "ddp"))


def _storage(folder: Path, _: str) -> None:
    words = ("--size-gib", "0.01", "--processes", "2")
    _run(sys.executable, "-m", f"{_OURS}.storage_bench", "--directory", folder, *words)


def _ranks(folder: Path, _: str) -> None:
    _falls(_train(folder, "train_fsdp", 2, "ranks"))


def _round_trip(folder: Path, _: str) -> None:
    """Go on from a checkpoint of two ranks on one, and see the losses that two would have had."""
    whole = _train(folder, "train_fsdp", 2, "whole")
    shutil.copytree(folder / "whole", folder / "resumed")
    shutil.rmtree(folder / "resumed" / f"iter_{_STEPS:07}")
    resumed = _train(folder, "train_fsdp", 1, "resumed", batch=2)
    _expect(len(resumed) == len(whole), f"{len(resumed)} steps instead of {len(whole)}")
    apart = max(abs(one - other) for one, other in zip(whole, resumed, strict=True))
    _expect(apart < _CLOSE, f"the losses differ by {apart:.2g} after the checkpoint")


def _all_reduce(_: Path, __: str) -> None:
    words = ("--min-bytes", "1K", "--max-bytes", "1M")
    _run(*_torchrun(2), "-m", f"{_OURS}.allreduce_bench", *words)


CASES: tuple[Case, ...] = (
    Case("gate", "quick", _gate),
    Case("imports", "quick", _imports),
    Case("programs", "quick", _starts),
    Case("prepare", "standard", _prepares),
    Case("fsdp", "standard", _fsdp),
    Case("ddp", "standard", _ddp),
    Case("storage", "standard", _storage),
    Case("workers", "full", _prepares_alike),
    Case("ranks", "full", _ranks),
    Case("checkpoint", "full", _round_trip),
    Case("all-reduce", "full", _all_reduce),
)
"""In their order; each leaves files under names of its own."""


def _prepared(folder: Path, workers: int) -> Path:
    prefix = folder / f"prepared-{workers}"
    out = prefix.with_name(f"{prefix.name}_text_document")
    if not out.with_suffix(".idx").exists():
        tokenizer = ("--tokenizer", _tokenizer(folder))
        words = ("--input", _corpus(folder), "--output-prefix", prefix, *tokenizer)
        start = (sys.executable, "-m", f"{_OURS}.prepare_data")
        _run(*start, *words, "--append-eod", "--workers", workers)
        _run(*start, "--verify", out, *tokenizer)
    return out


def _train(folder: Path, name: str, ranks: int, run: str, *, batch: int = 1) -> list[float]:
    checkpoints = folder / run
    config = {
        "model": _MODEL,
        "training": {
            "max_steps": _STEPS,
            "train_batch_size": batch,
            "sequence_length": 64,
            "learning_rate": 0.01,
            "warmup_iters": 1,
        },
        "data": {"dataset": str(_corpus(folder)), "tokenizer": str(_tokenizer(folder))},
        "checkpoint": {"directory": str(checkpoints), "interval": _SAVED, "keep_last": 2},
    }
    file = folder / f"{run}.json"
    file.write_text(json.dumps(config))
    words = ("--config", file, "--device", "cpu")
    _run(*_torchrun(ranks), "-m", f"{_OURS}.{name}", *words)
    lines = (checkpoints / "metrics.jsonl").read_text().splitlines()
    steps = {each["step"]: float(each["loss"]) for each in map(json.loads, lines)}
    return [steps[step] for step in sorted(steps)]


def _falls(losses: list[float]) -> None:
    _expect(len(losses) == _STEPS, f"{len(losses)} steps instead of {_STEPS}")
    _expect(losses[-1] < losses[0], f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}")


def _corpus(folder: Path) -> Path:
    """Write documents of words that repeat, so that a few steps learn something."""
    path = folder / "corpus.jsonl"
    if not path.exists():
        documents = [f"{number} times the same words again and again. " * 8 for number in range(99)]
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


def _tokenizer(folder: Path) -> Path:
    """Write a byte-level tokenizer without merges, as the `tokenizers` library reads it."""
    path = folder / "tokenizer"
    if path.exists():
        return path
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    vocabulary = {chr(byte if byte in printable else next(others)): byte for byte in range(256)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    level["trim_offsets"] = False
    end: dict[str, object] = {"id": _END, "content": "</s>", "special": True, "normalized": False}
    end |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    content = {
        "version": "1.0",
        "added_tokens": [end],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary | {"</s>": _END}, "merges": []},
    }
    path.mkdir()
    (path / "tokenizer.json").write_text(json.dumps(content))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return path


def _torchrun(ranks: int) -> list[str]:
    module = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*module, f"--nproc-per-node={ranks}"]


def _run(*words: object) -> None:
    """Run a command to its end; raise FailedError with its last words."""
    # A container without a network resolves not even its own name, which gloo would ask for.
    own = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(  # noqa: S603 -- the image's own programs
            [str(word) for word in words],
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise FailedError(f"no end after {_SECONDS} s: {words[-1]}") from late
    if done.returncode:
        last = done.stdout.strip() or "it said nothing"
        raise FailedError(f"{last}\nexit code {done.returncode}")


def _expect(holds: bool, otherwise: str) -> None:  # noqa: FBT001 -- a condition and its words
    if not holds:
        raise FailedError(otherwise)
